"""The form of named subscribers, and the permissions that the server gets for them."""

from pathlib import Path

import pytest

from common import errors
from nats_admin import credential_folder, permissions, subscribers
from nats_admin.server_conf import ServerConfig
from nats_admin.subscribers import NamedSubscriber
from unit.nats_admin.test_nats_setup import NOW


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        (" ; ", ()),
        ("auditor", (NamedSubscriber("auditor"),)),
        (
            "team-a=ns1,ns2; b=ns3",
            (NamedSubscriber("team-a", ("ns1", "ns2")), NamedSubscriber("b", ("ns3",))),
        ),
        ("a=ns1, ns1", (NamedSubscriber("a", ("ns1",)),)),
    ],
)
def test_subscribers_are_named_with_their_namespaces(
    text: str, found: tuple[NamedSubscriber, ...]
) -> None:
    assert subscribers.parse_subscribers(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Team=ns", "'Team' is no name"),
        ("a.>=ns", "'a.>' is no name"),
        ("a=", "'', of 'a', is no namespace"),
        ("a=ns1,*", "'*', of 'a', is no namespace"),
        ("a=ns1;a=ns2", "'a' stands twice"),
        (";".join(f"n{number}" for number in range(101)), "101 are named, at most 100"),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str) -> None:
    with pytest.raises(errors.InvalidSpec) as caught:
        subscribers.parse_subscribers(text)
    assert why in str(caught.value)


def test_a_named_subscriber_may_use_its_consumer_and_nothing_else() -> None:
    *_, user = permissions.list_users([NamedSubscriber("a", ("ns",))])

    assert user == permissions.NatsUser(
        name="subscriber-a",
        account=permissions.OUTSIDE,
        publish=(
            "$JS.API.CONSUMER.INFO.RAY_EVENTS.a",
            "$JS.API.CONSUMER.MSG.NEXT.RAY_EVENTS.a",
            "$JS.ACK.RAY_EVENTS.a.>",
        ),
        subscribe=("_INBOX_subscriber-a.>",),
    )


def test_a_subscriber_that_is_named_later_gets_a_key_and_one_that_is_named_no_more_is_forgotten_by_the_server(
    tmp_path: Path,
) -> None:
    named = ServerConfig(folder="/f", store="/s", subscribers=(NamedSubscriber("a"),))
    plain = ServerConfig(folder="/f", store="/s")
    credential_folder.complete_folder(tmp_path, plain, names=["nats"], now=NOW)

    written = credential_folder.complete_folder(tmp_path, named, names=["nats"], now=NOW)
    assert written == ["users/subscriber-a.seed", "nats-server.conf"]
    assert "_INBOX_subscriber-a.>" in (tmp_path / "nats-server.conf").read_text()
    assert credential_folder.complete_folder(tmp_path, plain, names=["nats"], now=NOW) == [
        "nats-server.conf"
    ]
    assert "_INBOX_subscriber-a.>" not in (tmp_path / "nats-server.conf").read_text()
