"""Streams, users and the server's configuration, as far as the code is pure."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from common import errors
from common.bus import nkeys, streams
from nats_admin import (
    certificates,
    credential_folder,
    event_streams,
    permissions,
    provision,
    server_conf,
)
from nats_admin.server_conf import ServerCluster, ServerConfig
from support.tables import cases

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = {user.name: [f"U{user.name.upper()}"] for user in permissions.USERS}


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    cluster = ServerCluster(routes=("nats-0.nats:6222",))
    server = ServerConfig(folder="/f", store="/s", host="::", cluster=cluster)
    text = server_conf.render(server, KEYS)
    for line in ('listen: "[::]:4222"', 'listen: "[::]:6222"', 'http: "[::]:8222"'):
        assert line in text


def test_every_user_stands_in_its_account_with_its_rights() -> None:
    text = server_conf.render(ServerConfig(folder="/etc/nats", store="/data/jetstream"), KEYS)

    ray, _, outside = text.partition("OUTSIDE {")
    assert all(
        KEYS[user.name][0] in (ray if user.account == permissions.RAY else outside)
        for user in permissions.USERS
    )
    assert '"_INBOX_watcher.>"' in ray
    assert 'cert_file: "/etc/nats/tls.crt"' in text
    assert 'store_dir: "/data/jetstream"' in text
    assert 'http: "0.0.0.0:8222"' in text
    assert "cluster {" not in text
    assert "$$" not in text.replace("$JS", "").replace("$SYS", "")


def test_servers_of_a_cluster_know_each_other_and_each_has_a_name_of_its_own() -> None:
    cluster = ServerCluster(routes=("nats-0.nats-servers:6222", "nats-1.nats-servers:6222"))
    where = ServerConfig(
        folder="/etc/nats",
        store="/data",
        name="$NATS_SERVER_NAME",
        cluster=cluster,
        max_store="8GB",
    )
    text = server_conf.render(where, KEYS)

    assert "server_name: $NATS_SERVER_NAME\n" in text
    assert "max_file_store: 8GB" in text
    routes = text.partition("routes: [")[2].partition("]")[0].split()
    assert routes == ['"tls://nats-0.nats-servers:6222"', '"tls://nats-1.nats-servers:6222"']


def test_every_key_of_a_user_gives_the_same_permissions() -> None:
    text = server_conf.render(
        ServerConfig(folder="/f", store="/s"), KEYS | {"watcher": ["UOLD", "UNEW"]}
    )

    rights = [
        line.partition("permissions: ")[2]
        for line in text.splitlines()
        if "UOLD" in line or "UNEW" in line
    ]
    assert len(rights) == 2
    assert rights[0] == rights[1]


def test_only_the_watcher_writes_state() -> None:
    writers = [user.name for user in permissions.USERS if "ray.state.>" in user.publish]

    assert writers == ["watcher"]


def test_no_service_creates_deletes_or_purges_a_stream_but_the_writer_of_its_own() -> None:
    verbs = ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "MSG.DELETE")
    rights = [
        right
        for user in permissions.USERS
        if user.name in permissions.SERVICES
        for right in user.publish
    ]

    found = {right for right in rights for verb in verbs if verb in right}
    assert found == {"$JS.API.STREAM.PURGE.RAY_STATE"}
    assert [
        user.name for user in permissions.USERS if "$JS.API.STREAM.PURGE.RAY_STATE" in user.publish
    ] == ["watcher"]


def test_a_seed_has_the_form_of_nats() -> None:
    seed = nkeys.new_seed()

    assert (seed[:2], len(seed)) == ("SU", 58)
    assert nkeys.derive_public_key(seed)[0] == "U"
    assert nkeys.derive_public_key(seed) == nkeys.derive_public_key(seed + "\n")


@pytest.mark.parametrize("text", ["", "SUAAAA", "SU" + "A" * 56])
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no NKEY seed|padding|Incorrect"):
        nkeys.derive_public_key(text)


def test_the_server_is_known_by_names_and_addresses() -> None:
    authority = certificates.make_ca(now=NOW)
    server = certificates.make_server_certificate(
        authority, names=["nats.raybus.svc", "127.0.0.1"], now=NOW
    )

    names = x509.load_pem_x509_certificate(server.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert [str(name.value) for name in names.value] == ["nats.raybus.svc", "127.0.0.1"]


def completed(folder: Path, *names: str, at: datetime = NOW) -> list[str]:
    return credential_folder.complete_folder(
        folder, ServerConfig(folder="/f", store="/s"), names=names or ("nats",), now=at
    )


def test_what_exists_is_kept_and_read_by_its_owner_alone(tmp_path: Path) -> None:
    first = completed(tmp_path)

    assert completed(tmp_path) == []
    assert set(first) == {
        *("ca.crt", "ca.key", "tls.crt", "tls.key", "nats-server.conf"),
        *(f"users/{user.name}.seed" for user in permissions.USERS),
    }
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in first} == {0o600}


def test_a_key_without_its_file_is_created_anew_and_the_server_learns_it(tmp_path: Path) -> None:
    completed(tmp_path)
    (tmp_path / "users" / "watcher.seed").unlink()

    assert completed(tmp_path) == ["users/watcher.seed", "nats-server.conf"]
    key = nkeys.derive_public_key((tmp_path / "users" / "watcher.seed").read_text())
    assert key in (tmp_path / "nats-server.conf").read_text()


def test_a_file_that_holds_no_seed_is_named(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "watcher.seed").write_text("nonsense")

    with pytest.raises(
        errors.InvalidSpec,
        match=r"users/watcher.seed holds no NKEY seed .* delete it and run again",
    ):
        completed(tmp_path)


@pytest.mark.parametrize(
    ("names", "later"),
    [
        pytest.param(("nats", "more"), timedelta(0), id="for a name that it lacks"),
        pytest.param(("nats",), certificates.LIFETIME - timedelta(days=20), id="that ends soon"),
    ],
)
def test_a_certificate_of_ours_is_renewed(
    names: tuple[str, ...], later: timedelta, tmp_path: Path
) -> None:
    completed(tmp_path)

    assert completed(tmp_path, *names, at=NOW + later) == ["tls.crt", "tls.key"]
    assert set(certificates.read_names((tmp_path / "tls.crt").read_bytes())) == set(names)


def test_a_certificate_that_somebody_else_signed_is_kept(tmp_path: Path) -> None:
    completed(tmp_path)
    theirs = certificates.make_server_certificate(
        certificates.make_ca(now=NOW), names=["other"], now=NOW
    )
    (tmp_path / "tls.crt").write_bytes(theirs.certificate)
    (tmp_path / "tls.key").write_bytes(theirs.key)

    assert completed(tmp_path) == []


def test_a_stream_that_differs_is_named_by_field() -> None:
    found = streams.build_state_config() | {
        "max_msgs_per_subject": -1,
        "allow_msg_ttl": False,
        "extra": 1,
    }

    assert streams.find_differences(streams.build_state_config(), found) == [
        "max_msgs_per_subject is -1, must be 1",
        "allow_msg_ttl is False, must be True",
    ]
    assert (
        streams.find_differences(streams.build_state_config(), streams.build_state_config()) == []
    )


def test_events_can_be_neither_deleted_nor_purged() -> None:
    for config in (event_streams.build_stream_config(), event_streams.build_mirror_config()):
        assert (config["deny_delete"], config["deny_purge"]) == (True, True)


def test_the_command_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        provision.main(["credentials"])

    assert ended.value.code == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["streams"], ["streams", "--watch"]])
def test_a_key_that_is_none_ends_the_process_with_one_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = tmp_path / "seed"
    seed.write_text("nonsense")
    monkeypatch.setenv("RAYBUS_NATS_SEED_FILE", str(seed))

    assert provision.main(arguments) == 2
    assert capsys.readouterr().err.splitlines()[-1].partition(": ")[2] == (
        f"RAYBUS_NATS_SEED_FILE={seed}: holds no NKEY seed; `python -m nats_admin.provision credentials` makes one"
    )


@cases(
    ("arguments", "complaint"),
    {
        "an even number of replicas": (["streams", "--replicas", "2"], "expected 1, 3 or 5"),
        "of servers": (["keeper", "--servers", "4"], "expected 1, or 3, 5 or 7"),
    },
)
def test_an_option_that_cannot_be_meant_is_named(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        provision.main(arguments)

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err
