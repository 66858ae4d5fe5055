"""The keys that are read from ConfigMaps of public keys, and the entries that are ignored."""

from datetime import UTC, datetime

import pytest

from common.bus import nkeys
from nats_admin import certificates, key_registry, permissions, server_conf
from nats_admin.server_conf import ServerConfig
from nats_admin.subscribers import NamedSubscriber

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_key() -> str:
    return nkeys.derive_public_key(nkeys.new_seed())


def test_a_key_gives_the_permissions_of_the_user_of_its_configmap_and_no_others() -> None:
    key = a_key()
    found = key_registry.read_registry({"nats-keys-traffic-manager": {"pod": key}})
    assert {user: keys for user, keys in found.keys.items() if keys} == {"traffic-manager": [key]}

    text = server_conf.render(ServerConfig(folder="/f", store="/s"), found.keys)
    assert text.count("nkey:") == 1
    assert '"_INBOX_traffic-manager.>"' in text
    assert '"ray.state.>"' not in text


@pytest.mark.parametrize(
    "name",
    [
        "nats-keys-nobody",
        "nats-keys-keeper",
        "nats-keys-subscriber-team-a",
        "watcher",
        "nats-keys-watcher.v2",
    ],
)
def test_a_configmap_of_another_name_gives_nothing(name: str) -> None:
    found = key_registry.read_registry({name: {"pod": a_key()}}, [NamedSubscriber("team-a")])
    assert [keys for keys in found.keys.values() if keys] == []


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("", id="nothing"),
        pytest.param("U" * 56, id="no checksum"),
        pytest.param(f"{a_key()}\n", id="a line break"),
        pytest.param(f" {a_key()}", id="a space"),
        pytest.param(a_key().lower(), id="lower case"),
        pytest.param(a_key()[:-1], id="too short"),
        pytest.param(nkeys.new_seed(), id="a private key"),
        pytest.param('U", permissions: {publish: ">"}}', id="configuration"),
    ],
)
def test_what_is_no_public_key_is_ignored_and_named(value: str) -> None:
    good = a_key()
    found = key_registry.read_registry({"nats-keys-watcher": {"bad": value, "good": good}})
    assert found.keys["watcher"] == [good]
    assert len(found.ignored) == 1
    assert "ConfigMap nats-keys-watcher, entry bad" in found.ignored[0]


@pytest.mark.parametrize(
    "user", [user for user in key_registry.USERS if user != "cluster-reconciler"]
)
def test_a_key_that_cluster_reconciler_copies_stays_with_its_user(user: str) -> None:
    key = a_key()
    found = key_registry.read_registry(
        {"nats-keys-cluster-reconciler": {"a": key}, f"nats-keys-{user}": {"b": key}}
    )
    assert (found.keys[user], found.keys["cluster-reconciler"]) == ([key], [])
    assert "cannot be one of cluster-reconciler as well" in found.ignored[0]


def test_a_user_has_a_bounded_number_of_keys() -> None:
    many = {f"pod-{number:03}": a_key() for number in range(nkeys.MAX_AUTHORITIES + 2)}
    found = key_registry.read_registry(
        {"nats-keys-watcher": many, "nats-keys-traffic-manager": {"pod": a_key()}}
    )
    assert found.keys["watcher"] == list(many.values())[: nkeys.MAX_AUTHORITIES]
    assert len(found.ignored) == 2
    assert len(found.keys["traffic-manager"]) == 1


def test_named_subscribers_share_a_configmap() -> None:
    keys = {"a": a_key(), "a.laptop": a_key(), "b": a_key(), "unknown": a_key()}
    found = key_registry.read_registry(
        {"nats-keys-named-subscribers": keys}, [NamedSubscriber("a"), NamedSubscriber("b")]
    )
    assert found.keys["subscriber-a"] == [keys["a"], keys["a.laptop"]]
    assert found.keys["subscriber-b"] == [keys["b"]]
    assert keys["unknown"] not in [key for each in found.keys.values() for key in each]


def test_servers_are_trusted_by_all_that_they_registered_and_nonsense_is_named() -> None:
    one, two = (certificates.make_ca(now=NOW).certificate.decode() for _ in range(2))
    bundle, ignored = nkeys.parse_authorities(
        {"nats-0": one, "nats-1": "nonsense", "nats-2": two, "nats-3": "x" * 10_000}
    )
    assert bundle == one + two
    assert [each.partition("entry ")[2].partition(",")[0] for each in ignored] == [
        "nats-1",
        "nats-3",
    ]


def test_entries_end_with_their_pods_and_those_of_people_do_not() -> None:
    maps = {
        "nats-keys-watcher": {"watcher-a": a_key(), "watcher-b": a_key()},
        "nats-servers": {"nats-0": "", "nats-1": ""},
        "nats-keys-subscriber": {"alice": a_key()},
    }
    gone = key_registry.find_orphans(maps, frozenset({"watcher-a", "nats-0"}))
    assert gone == {("nats-keys-watcher", "watcher-b"), ("nats-servers", "nats-1")}


def test_every_user_but_the_keepers_has_a_configmap() -> None:
    assert {*key_registry.USERS, *key_registry.KEEPERS} == {user.name for user in permissions.USERS}
