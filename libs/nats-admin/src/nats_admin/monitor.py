"""Exports metrics from a NATS server's monitoring port: storage, memory, connections, replicas.

The monitor runs in the container `keeper` beside each NATS server, and exports that server's view.
Only the leader of a stream knows how far its replicas lag, so only the leader exports the lag.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import httpx
import msgspec
import structlog
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric

from common import errors, untrusted
from common.observability import health
from common.observability.health import HealthCheck
from common.observability.metrics import MetricFamily

log = structlog.get_logger()

OBSERVE_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
MAX_ANSWER_SIZE: Final = 4 * 1024 * 1024
STREAMS: Final = "/jsz?accounts=1&streams=1"
SILENT: Final = 30_000_000_000
"""Nanoseconds without contact to the leader after which a replica counts as away.

NATS itself counts it as away after 10 s.
"""
_STREAM: Final = ("account", "stream")

UP: Final = MetricFamily(
    name="raybus_nats_up", text="1 while the monitoring port of the NATS server answers"
)
STORAGE: Final = MetricFamily(
    name="raybus_nats_storage_bytes",
    text="Bytes that JetStream counts against its limit on this server, before compression",
)
STORAGE_LIMIT: Final = MetricFamily(
    name="raybus_nats_storage_limit_bytes",
    text="Bytes that JetStream may store on this server (`NATS_MAX_STORE`)",
)
MEMORY: Final = MetricFamily(
    name="raybus_nats_memory_bytes", text="Resident memory of the NATS server"
)
CONNECTIONS: Final = MetricFamily(
    name="raybus_nats_connections", text="Clients that are connected to this server"
)
SLOW_CONSUMERS: Final = MetricFamily(
    name="raybus_nats_slow_consumers_total",
    text="Clients that the server disconnected because they did not read what it sent",
    is_counter=True,
)
STREAM_BYTES: Final = MetricFamily(
    name="raybus_nats_stream_bytes",
    text="Bytes of a stream on this server, before compression",
    labels=_STREAM,
)
STREAM_MESSAGES: Final = MetricFamily(
    name="raybus_nats_stream_messages", text="Messages of a stream on this server", labels=_STREAM
)
STREAM_LEADER: Final = MetricFamily(
    name="raybus_nats_stream_leader",
    text="1 on the server that leads a stream, 0 on the others",
    labels=_STREAM,
)
STREAM_LAG: Final = MetricFamily(
    name="raybus_nats_stream_lag_messages",
    text="Raft entries by which the replica that is furthest behind lags, as the leader knows it",
    labels=_STREAM,
)
STREAM_AWAY: Final = MetricFamily(
    name="raybus_nats_stream_replicas_away",
    text="Replicas of a stream without contact to its leader for 30 s",
    labels=_STREAM,
)


class StreamMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as one server sees it. `lag` and `away` are None unless the server leads the stream.

    `lag` is the number of Raft entries by which the slowest replica is behind; `away` is the number
    of replicas without contact to the leader.
    """

    account: str
    name: str
    bytes: int
    messages: int
    leads: bool
    lag: int | None = None
    away: int | None = None


class ServerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one server; sizes in bytes."""

    storage: int
    storage_limit: int
    memory: int
    connections: int
    slow_consumers: int
    streams: tuple[StreamMetrics, ...] = ()


# --- reading ------------------------------------------------------------------------------


class _Store(msgspec.Struct, frozen=True):
    storage: int = 0
    max_storage: int = 0


class _JetStream(msgspec.Struct, frozen=True):
    config: _Store = _Store()
    stats: _Store = _Store()


class _Varz(msgspec.Struct, frozen=True):
    server_name: str
    mem: int
    connections: int
    slow_consumers: int
    jetstream: _JetStream = _JetStream()


class _Replica(msgspec.Struct, frozen=True):
    current: bool = False
    offline: bool = False
    active: int = 0
    """Nanoseconds since the replica's last contact with the leader; 0 if it never had contact."""
    lag: int = 0

    @property
    def is_away(self) -> bool:
        return self.offline or (not self.current and (self.active == 0 or self.active > SILENT))


class _Group(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: list[_Replica] = []


class _StreamLimits(msgspec.Struct, frozen=True):
    messages: int
    bytes: int


class _Stream(msgspec.Struct, frozen=True):
    name: str
    state: _StreamLimits
    cluster: _Group = _Group()


class _Account(msgspec.Struct, frozen=True):
    name: str
    stream_detail: list[_Stream] = []


class _Jsz(msgspec.Struct, frozen=True):
    account_details: list[_Account] = []


def decode_answers(varz: bytes, jsz: bytes) -> ServerMetrics:
    """Decode the answers of the server's monitoring paths `/varz` and `STREAMS`.

    Raises `ValueError` if they are not answers of a NATS server.
    """
    server = msgspec.json.decode(varz, type=_Varz)
    accounts = msgspec.json.decode(jsz, type=_Jsz).account_details
    return ServerMetrics(
        storage=server.jetstream.stats.storage,
        storage_limit=server.jetstream.config.max_storage,
        memory=server.mem,
        connections=server.connections,
        slow_consumers=server.slow_consumers,
        streams=tuple(
            _build_stream_metrics(account.name, detail, server.server_name)
            for account in accounts
            for detail in account.stream_detail
        ),
    )


def _build_stream_metrics(account: str, detail: _Stream, server: str) -> StreamMetrics:
    leads, replicas = detail.cluster.leader == server, detail.cluster.replicas
    return StreamMetrics(
        account=account,
        name=detail.name,
        bytes=detail.state.bytes,
        messages=detail.state.messages,
        leads=leads,
        lag=max((replica.lag for replica in replicas), default=0) if leads else None,
        away=sum(replica.is_away for replica in replicas) if leads else None,
    )


# --- exporting ----------------------------------------------------------------------------


def build_families(server: ServerMetrics | None) -> list[Metric]:
    """Return the metrics of a server; only `raybus_nats_up` if `server` is None (no answer)."""
    if server is None:
        return [_build_family(UP, 0)]
    streams = server.streams
    return [
        _build_family(UP, 1),
        _build_family(STORAGE, server.storage),
        _build_family(STORAGE_LIMIT, server.storage_limit),
        _build_family(MEMORY, server.memory),
        _build_family(CONNECTIONS, server.connections),
        _build_family(SLOW_CONSUMERS, server.slow_consumers),
        _build_stream_family(STREAM_BYTES, ((stream, stream.bytes) for stream in streams)),
        _build_stream_family(STREAM_MESSAGES, ((stream, stream.messages) for stream in streams)),
        _build_stream_family(STREAM_LEADER, ((stream, stream.leads) for stream in streams)),
        _build_stream_family(STREAM_LAG, ((stream, stream.lag) for stream in streams)),
        _build_stream_family(STREAM_AWAY, ((stream, stream.away) for stream in streams)),
    ]


def _build_family(family: MetricFamily, value: float) -> Metric:
    metric = family.empty()
    metric.add_metric([], value)
    return metric


def _build_stream_family(
    family: MetricFamily, values: Iterable[tuple[StreamMetrics, int | None]]
) -> Metric:
    metric = family.empty()
    for stream, value in values:
        if value is not None:
            metric.add_metric([stream.account, stream.name], value)
    return metric


class Monitor:
    """Polls one server and exports its metrics as a collector of `prometheus_client`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._found: ServerMetrics | None = None
        self.problem: str | None = "the NATS server was not observed yet"

    async def run(
        self,
        port: int,
        registry: CollectorRegistry = REGISTRY,
        *,
        port_file: Path | None = None,
        ready: HealthCheck = lambda: None,
    ) -> None:
        """Poll the server, and serve `/metrics` and `/readyz` on `port`, until cancelled.

        `/readyz` fails while the server does not answer, and otherwise while `ready` returns a
        problem.
        """
        registry.register(self)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    health.serve(port, ready=lambda: self.problem or ready(), port_file=port_file)
                )
                group.create_task(self._observe())
        finally:
            registry.unregister(self)

    def collect(self) -> list[Metric]:
        return build_families(self._found)

    async def _observe(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client:
            while True:
                try:
                    self._found = decode_answers(
                        await self._get(client, "/varz"), await self._get(client, STREAMS)
                    )
                    problem = None
                except (httpx.HTTPError, errors.Unavailable, ValueError) as error:
                    self._found = None
                    problem = (
                        f"the monitoring port {self._url} of NATS does not answer: "
                        f"{type(error).__name__}: {error}"
                    )
                    if problem != self.problem:
                        log.warning("cannot observe the NATS server", problem=problem)
                self.problem = problem
                await asyncio.sleep(OBSERVE_SECONDS)

    async def _get(self, client: httpx.AsyncClient, path: str) -> bytes:
        async with client.stream("GET", f"{self._url}{path}", headers=untrusted.IDENTITY) as answer:
            if not answer.is_success:
                raise errors.Unavailable(f"{path} answered {answer.status_code}")
            return await untrusted.read(answer.headers, answer.aiter_raw(), most=MAX_ANSWER_SIZE)
