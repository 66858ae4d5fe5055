"""Keys that are replaced in phases: what is good, and what is shown, at each moment."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from common import errors
from common.bus import credential_store, credentials, issue, permissions
from common.bus.credential_store import Step
from common.bus.rotation import Phase
from common.bus.server_conf import Server

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAUSE = timedelta(minutes=3)
SERVER = Server(folder="/f", store="/s")
WATCHER = "nats-user-watcher"
AUTHORITY = "nats-authority"


class Bundles:
    """Implements `credential_store.Store` in memory."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.refuses: set[str] = set()

    async def read(self, bundle: str) -> dict[str, bytes]:
        return dict(self.files.get(bundle, {}))

    async def write(self, bundle: str, files: Mapping[str, bytes]) -> None:
        if bundle in self.refuses:
            raise errors.Unavailable(f"{bundle} cannot be written now")
        self.files[bundle] = dict(files)

    def seed(self) -> str:
        return self.files[WATCHER]["seed"].decode()

    def is_good(self, seed: str) -> bool:
        return credentials.public_key(seed) in self.files["nats-server"]["nats-server.conf"].decode()

    def certificate(self) -> bytes:
        return self.files["nats-server"]["tls.crt"]

    def trusts(self, bundle: str) -> list[bytes]:
        return credentials.split(self.files[bundle]["ca.crt"])


@pytest.fixture
async def store() -> Bundles:
    made = Bundles()
    await credential_store.complete(made, SERVER, names=["nats"], now=NOW)
    return made


async def step(store: Bundles, minute: float, *begin: str) -> Step:
    now = NOW + timedelta(minutes=minute)
    return await credential_store.rotate(store, SERVER, begin=frozenset(begin), overlap=PAUSE, now=now)


async def test_a_users_key_is_known_before_it_is_used_and_good_until_nobody_uses_it(store: Bundles) -> None:
    old = store.seed()

    first = await step(store, 0, WATCHER)
    new = store.files[WATCHER]["next"].decode()
    assert (store.seed(), store.is_good(old), store.is_good(new)) == (old, True, True)
    assert first.waiting == {WATCHER: Phase.LEARNING}
    assert first.due == NOW + PAUSE

    second = await step(store, 3)
    assert (store.seed(), store.is_good(old), store.is_good(new)) == (new, True, True)
    assert second.waiting == {WATCHER: Phase.SPREADING}

    last = await step(store, 6)
    assert (store.seed(), store.is_good(old), store.is_good(new)) == (new, False, True)
    assert last == Step(written=(WATCHER, "nats-server"))
    assert store.files[WATCHER].keys() == {"seed", "ca.crt"}


async def test_nothing_moves_before_its_time_or_twice(store: Bundles) -> None:
    await step(store, 0, WATCHER)
    before = {bundle: dict(files) for bundle, files in store.files.items()}

    assert (await step(store, 2.9)).written == ()
    assert (await step(store, 2.9, WATCHER)).written == ()
    assert store.files == before


async def test_a_key_that_the_servers_were_never_told_of_is_not_handed_out(store: Bundles) -> None:
    old = store.seed()
    store.refuses = {"nats-server"}
    with pytest.raises(errors.Unavailable):
        await step(store, 0, WATCHER)
    store.refuses = set()

    late = await step(store, 60)
    assert store.seed() == old
    assert late.due == NOW + timedelta(minutes=63)
    await step(store, 63)
    assert store.seed() != old


async def test_a_new_authority_is_trusted_by_all_before_it_signs_and_the_old_one_goes_last(store: Bundles) -> None:
    old = store.trusts(AUTHORITY)[0]
    certificate = store.certificate()

    await step(store, 0, AUTHORITY)
    new = store.trusts(AUTHORITY)[1]
    assert {tuple(store.trusts(bundle)) for bundle in store.files} == {(old, new)}
    assert store.certificate() == certificate

    await step(store, 3)
    assert {tuple(store.trusts(bundle)) for bundle in store.files} == {(new, old)}
    assert credentials.is_signed_by(store.certificate(), new)

    await step(store, 6)
    assert {tuple(store.trusts(bundle)) for bundle in store.files} == {(new,)}
    assert credentials.is_signed_by(store.certificate(), new)
    assert (await step(store, 60)).due is None


async def test_a_servers_certificate_is_replaced_at_once_since_all_trust_who_signs_it(store: Bundles) -> None:
    old = store.certificate()

    assert await step(store, 0, "nats-server") == Step(written=("nats-server",))
    assert store.certificate() != old
    assert credentials.names_of(store.certificate()) == ["nats"]


async def test_a_certificate_of_somebody_else_is_never_touched(store: Bundles) -> None:
    stranger = credentials.new_authority(now=NOW)
    theirs = credentials.new_server(stranger, names=["nats"], now=NOW)
    store.files["nats-server"] |= {"tls.crt": theirs.certificate, "tls.key": theirs.key}

    await credential_store.complete(store, SERVER, names=["nats", "more"], now=NOW)
    assert store.certificate() == theirs.certificate
    with pytest.raises(errors.InvalidSpec, match="somebody else signed; renew it where it comes from"):
        await step(store, 0, "nats-server")


@pytest.mark.parametrize(
    ("names", "later", "is_replaced"),
    [
        pytest.param(["nats"], timedelta(), False, id="it fits"),
        pytest.param(["nats", "nats-0.nats-servers"], timedelta(), True, id="a server more"),
        pytest.param(["nats"], timedelta(days=3600), False, id="valid for longer than a month"),
        pytest.param(["nats"], timedelta(days=3630), True, id="ends within a month"),
    ],
)
async def test_a_certificate_that_no_longer_fits_is_replaced(
    names: list[str], later: timedelta, is_replaced: bool, store: Bundles
) -> None:
    old = store.certificate()
    await credential_store.complete(store, SERVER, names=names, now=NOW + later)
    assert (store.certificate() != old) is is_replaced


async def test_an_interrupted_replacement_survives_an_ordinary_run(store: Bundles) -> None:
    old = store.seed()
    await step(store, 0, WATCHER)
    new = store.files[WATCHER]["next"].decode()

    assert await credential_store.complete(store, SERVER, names=["nats"], now=NOW) == []
    assert store.is_good(old)
    assert store.is_good(new)


async def test_what_is_not_there_cannot_be_replaced() -> None:
    with pytest.raises(errors.InvalidSpec, match="run the command without --rotate first"):
        await step(Bundles(), 0, WATCHER)


def test_all_means_all() -> None:
    everything = {"nats-authority", "nats-server", *(f"nats-user-{user.name}" for user in permissions.USERS)}
    assert issue.bundles(["all"]) == everything
    assert issue.bundles(["watcher", "server"]) == {WATCHER, "nats-server"}
