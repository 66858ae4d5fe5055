"""The metrics of a NATS server, from answers of its monitoring port."""

from typing import Any

import msgspec
import pytest

from nats_admin import monitor
from nats_admin.monitor import ServerMetrics, StreamMetrics

VARZ = {
    "server_name": "nats-0",
    "mem": 22_000_000,
    "connections": 7,
    "slow_consumers": 2,
    "jetstream": {"config": {"max_storage": 900_000_000}, "stats": {"storage": 720_000_001}},
}
CONTACT = 1_000_000_000


def jsz(*replicas: dict[str, Any], leader: str = "nats-0") -> bytes:
    group = {"name": "raybus", "leader": leader, "replicas": list(replicas)}
    stream = {"name": "RAY_STATE", "cluster": group, "state": {"messages": 5, "bytes": 1234}}
    accounts = [{"name": "OUTSIDE"}, {"name": "RAY", "stream_detail": [stream]}]
    return msgspec.json.encode({"account_details": accounts})


def state(*replicas: dict[str, Any], leader: str = "nats-0") -> StreamMetrics:
    (found,) = monitor.decode_answers(
        msgspec.json.encode(VARZ), jsz(*replicas, leader=leader)
    ).streams
    return found


def exported(found: ServerMetrics | None) -> dict[str, float]:
    return {
        "/".join([sample.name, *sample.labels.values()]): sample.value
        for metric in monitor.build_families(found)
        for sample in metric.samples
    }


def test_a_server_and_its_streams_are_read() -> None:
    assert monitor.decode_answers(msgspec.json.encode(VARZ), jsz()) == ServerMetrics(
        storage=720_000_001,
        storage_limit=900_000_000,
        memory=22_000_000,
        connections=7,
        slow_consumers=2,
        streams=(
            StreamMetrics(
                account="RAY", name="RAY_STATE", bytes=1234, messages=5, leads=True, lag=0, away=0
            ),
        ),
    )


def test_a_leader_reports_the_lag_of_the_last_replica() -> None:
    found = state(
        {"current": True, "active": CONTACT},
        {"active": CONTACT, "lag": 40},
        {"active": CONTACT, "lag": 3},
    )
    assert (found.lag, found.away) == (40, 0)


@pytest.mark.parametrize(
    ("replica", "away"),
    [
        pytest.param({"current": True, "active": CONTACT}, 0, id="current"),
        pytest.param({"active": CONTACT}, 0, id="behind for the moment"),
        pytest.param({"active": 12 * CONTACT}, 0, id="silent for less than 30 s"),
        pytest.param({"active": 31 * CONTACT}, 1, id="silent for longer"),
        pytest.param({"active": 0}, 1, id="no contact since this server leads"),
        pytest.param({"active": CONTACT, "offline": True}, 1, id="its server is gone"),
    ],
)
def test_a_replica_without_contact_to_the_leader_is_offline(
    replica: dict[str, Any], away: int
) -> None:
    assert state(replica, {"current": True, "active": CONTACT}).away == away


@pytest.mark.parametrize("leader", ["nats-1", ""])
def test_a_server_that_does_not_lead_a_stream_knows_nothing_of_its_replicas(leader: str) -> None:
    found = state({"active": 0}, {"current": True, "active": CONTACT, "lag": 9}, leader=leader)
    assert (found.leads, found.lag, found.away) == (False, None, None)


def test_each_figure_is_a_series() -> None:
    assert exported(
        monitor.decode_answers(msgspec.json.encode(VARZ), jsz({"active": 0, "lag": 4}))
    ) == {
        "raybus_nats_up": 1,
        "raybus_nats_storage_bytes": 720_000_001,
        "raybus_nats_storage_limit_bytes": 900_000_000,
        "raybus_nats_memory_bytes": 22_000_000,
        "raybus_nats_connections": 7,
        "raybus_nats_slow_consumers_total": 2,
        "raybus_nats_stream_bytes/RAY/RAY_STATE": 1234,
        "raybus_nats_stream_messages/RAY/RAY_STATE": 5,
        "raybus_nats_stream_leader/RAY/RAY_STATE": 1,
        "raybus_nats_stream_lag_messages/RAY/RAY_STATE": 4,
        "raybus_nats_stream_replicas_away/RAY/RAY_STATE": 1,
    }


def test_only_the_leader_of_a_stream_exports_its_lag() -> None:
    found = exported(monitor.decode_answers(msgspec.json.encode(VARZ), jsz(leader="nats-1")))
    assert found["raybus_nats_stream_leader/RAY/RAY_STATE"] == 0
    assert not any("lag" in name or "away" in name for name in found)


def test_a_server_that_does_not_answer_leaves_no_old_figures() -> None:
    assert exported(None) == {"raybus_nats_up": 0}


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"server_name": 7}', b"<html>"])
def test_what_no_nats_server_answers_is_an_error(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        monitor.decode_answers(answer, jsz())
