"""A route of our own between two backends: how soon a gateway follows its weights."""

import asyncio
import time
from typing import Final

import msgspec

from chaos.stack import BACKGROUND
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import ENDPOINT_SLICE, HTTP_ROUTE, SERVICE
from integration.gateways.backends import Backends
from integration.gateways.load import Client
from integration.gateways.report import Copies, Delays, FirstUse, Session
from support.waiting import eventually_true

BACKENDS: Final = {"probe-a": "10.250.0.1", "probe-b": "10.250.0.2"}
"""Services and the addresses of their backends, outside the range of the pods."""
PORT: Final = 8000
WRITES: Final = 20
IN_A_ROW: Final = 25
"""So many answers in a row from the new backend end one measurement."""
TIMEOUT: Final = 60.0
ASKED: Final = 20
FRESH: Final = 10
"""Number of backends whose first use is measured."""
MIRRORED: Final = 200
"""Requests to a mirrored route."""
MIRROR_PERCENT: Final = 20
SETTLE_SECONDS: Final = 1.0


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one write; all times are in milliseconds after it."""

    first: float
    """When the first request reached the new backend."""
    last: float
    """When the last request reached the old backend."""
    status: float
    """When the status named the generation."""
    failures: dict[float, str]
    """Errors of requests by the time."""


class Probe:
    """Two backends and the routes to them."""

    def __init__(self, kube: KubeClient, client: Client, backends: Backends, gateway: str) -> None:
        self._kube = kube
        self._client = client
        self._gateway = gateway
        self._backends = backends
        backends.clusters |= {address: name for name, address in BACKENDS.items()}

    async def begin(self) -> None:
        """Create both Services, without pods."""
        for name, address in BACKENDS.items():
            await self._create_service(name, address)

    async def _create_service(self, name: str, address: str) -> None:
        spec: Json = {"ports": [{"name": "http", "port": PORT}]}
        await self._kube.create(
            SERVICE,
            BACKGROUND,
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec},
        )
        await self._kube.create(
            ENDPOINT_SLICE,
            BACKGROUND,
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
                "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
            },
        )

    async def route(self, name: str, rule: Json, *, parents: tuple[str, ...] = ()) -> str:
        """Create a route with one rule; return its host name."""
        host = f"{name}.example"
        spec: Json = {
            "parentRefs": [{"name": parent} for parent in (parents or (self._gateway,))],
            "hostnames": [host],
            "rules": [rule],
        }
        body: Body = {
            "apiVersion": HTTP_ROUTE.api_version,
            "kind": HTTP_ROUTE.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self._kube.create(HTTP_ROUTE, BACKGROUND, body)
        return host

    async def measure_delays(self) -> Delays:
        """Move all requests from one backend to the other and back, `WRITES` times.

        Both backends have had requests before.
        """
        names = list(BACKENDS)
        host = await self.route("probe", split(50))
        await self._until_applied(host)
        await self._move("probe", split(100), host, names[0])
        delays = Delays(first=[], last=[], status=[], failed=0)
        for turn in range(WRITES):
            rule = split(0 if turn % 2 == 0 else 100)
            moved = await self._move("probe", rule, host, names[(turn + 1) % 2])
            delays.first.append(moved.first)
            delays.last.append(moved.last)
            delays.status.append(moved.status)
            delays = msgspec.structs.replace(delays, failed=delays.failed + len(moved.failures))
        return delays

    async def measure_first_use(self) -> FirstUse:
        """Give all requests to backends that had weight 0 before, one after the other."""
        host = await self.route("fresh", split(100))
        await self._until_applied(host)
        result = FirstUse(failed=[], last=[], errors=[])
        errors = set[str]()
        for number in range(FRESH):
            name, address = f"fresh-{number}", f"10.250.1.{number + 1}"
            self._backends.clusters[address] = name
            await self._create_service(name, address)
            known = {"name": "probe-a", "port": PORT}
            new = {"name": name, "port": PORT}
            before = {"backendRefs": [{**known, "weight": 100}, {**new, "weight": 0}]}
            after = {"backendRefs": [{**known, "weight": 0}, {**new, "weight": 100}]}
            await self._move("fresh", before, host, "probe-a")
            await asyncio.sleep(SETTLE_SECONDS)
            failures = (await self._move("fresh", after, host, name)).failures
            result.failed.append(len(failures))
            result.last.append(max(failures) - min(failures) if failures else 0.0)
            errors |= set(failures.values())
        return msgspec.structs.replace(result, errors=sorted(errors))

    async def measure_mirror(self) -> Copies:
        """Ask a route that mirrors a percentage of the requests to another backend."""
        mirror = {
            "percent": MIRROR_PERCENT,
            "backendRef": {"name": "probe-b", "port": PORT},
        }
        filters = [{"type": "RequestMirror", "requestMirror": mirror}]
        host = await self.route("mirrored", {**split(100), "filters": filters})
        await self._until_applied(host)
        answers = [await self._client.ask(host) for _ in range(MIRRORED)]
        await asyncio.sleep(SETTLE_SECONDS)
        body = msgspec.json.decode(await self._kube.get(HTTP_ROUTE, BACKGROUND, "mirrored"))
        conditions = [
            condition["status"]
            for parent in body.get("status", {}).get("parents", [])
            for condition in parent["conditions"]
        ]
        return Copies(
            asked_percent=MIRROR_PERCENT,
            requests=len(answers),
            failed=sum(bool(answer.error) for answer in answers),
            copies=sum("probe-b" in self._backends.takers[answer.number] for answer in answers),
            is_accepted=bool(conditions) and set(conditions) == {"True"},
        )

    async def _move(self, route: str, rule: Json, host: str, new: str) -> Moved:
        """Write a rule that gives all requests to `new`, and ask until it has them all."""
        patch = PatchRequest(body={"spec": {"rules": [rule]}})
        written = msgspec.json.decode(await self._kube.patch(HTTP_ROUTE, BACKGROUND, route, patch))
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            status = group.create_task(
                self._until_observed(route, written["metadata"]["generation"], began)
            )
            moved = await self._until_moved(host, new, began)
        return msgspec.structs.replace(moved, status=status.result())

    async def _until_moved(self, host: str, new: str, began: float) -> Moved:
        first, last, streak = None, 0.0, 0
        failures: dict[float, str] = {}
        async with asyncio.timeout(TIMEOUT):
            while streak < IN_A_ROW or first is None:
                asked = 1000 * (time.monotonic() - began)
                answer = await self._client.ask(host)
                if answer.error:
                    failures[asked] = answer.error
                if answer.cluster == new:
                    streak += 1
                    first = asked if first is None else first
                else:
                    streak, last = 0, asked if answer.cluster else last
        return Moved(first=first, last=last, status=0.0, failures=failures)

    async def _until_observed(self, route: str, generation: int, began: float) -> float:
        """Return when the status named the generation, in milliseconds; -1 if it never does."""
        while time.monotonic() - began < TIMEOUT / 4:
            body = msgspec.json.decode(await self._kube.get(HTTP_ROUTE, BACKGROUND, route))
            stated = [
                condition.get("observedGeneration", 0)
                for parent in body.get("status", {}).get("parents", [])
                for condition in parent["conditions"]
                if condition["type"] == "Accepted"
            ]
            if stated and min(stated) >= generation:
                return 1000 * (time.monotonic() - began)
            await asyncio.sleep(0.01)
        return -1.0

    async def measure_session(self) -> Session:
        """Ask a rule with session persistence by a cookie."""
        persistence: Json = {"sessionName": "probe-session", "type": "Cookie"}
        host = await self.route("sticky", {**split(50), "sessionPersistence": persistence})
        body = msgspec.json.decode(await self._kube.get(HTTP_ROUTE, BACKGROUND, "sticky"))
        await self._until_applied(host)
        answer = await self._client.ask(host)
        cookie = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
        headers = {"Cookie": cookie} if cookie else {}
        answers = [await self._client.ask(host, headers=headers) for _ in range(ASKED)]
        return Session(
            is_kept_by_crd="sessionPersistence" in body["spec"]["rules"][0],
            cookies=list(answer.cookies),
            backends=len({each.cluster for each in answers}),
        )

    async def until_answered(self, host: str, prefix: str = "") -> None:
        """Wait until requests to a host reach a cluster or backend whose name begins with `prefix`.

        The weighted route of the RayService has no host names. It answers the requests to each host
        whose own route the gateway has not applied yet.
        """

        async def is_answered() -> bool:
            answer = await self._client.ask(host)
            return bool(answer.cluster) and answer.cluster.startswith(prefix)

        await eventually_true(is_answered, within=TIMEOUT, every=0.1, what=f"answers of {host}")

    async def _until_applied(self, host: str) -> None:
        """Wait until the gateway has applied the route of a host, even if it answers errors."""

        async def is_applied() -> bool:
            answer = await self._client.ask(host)
            return bool(answer.error) or answer.cluster in BACKENDS

        await eventually_true(is_applied, within=TIMEOUT, every=0.1, what=f"the route of {host}")


def split(percent: int) -> Json:
    """Return a rule that sends this share to the first backend, and the rest to the second."""
    weights = zip(BACKENDS, (percent, 100 - percent), strict=True)
    return {
        "backendRefs": [{"name": name, "port": PORT, "weight": weight} for name, weight in weights]
    }
