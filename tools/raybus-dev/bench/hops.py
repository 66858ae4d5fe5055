"""Through how many functions of raybus does a change pass?

    make hops

The API server, etcd, scheduler, controller-manager and NATS are real; pods (kwok), Ray heads and
the gateway are simulated; the services run as `raybus up` runs them. Two changes are traced:

- A RayCluster is scaled up: from the user's request to the request that creates the pod.
- An upgrade moves by one step: from one write of the route to the next. Of all steps, the one with
  the fewest functions counts, because unrelated work may run between two writes.

A function counts if it is on the stack when work is handed over (to a waiting task, to NATS, to the
API server) or if it returns planned actions. What the processes also do at rest (Leases, timers)
does not count, nor does the recorder of Kubernetes Events, because nothing waits for it.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

from bench import background, heads, pod_network, report, rig
from bench.report import emit
from bench.rig import ALONE, Rig
from common.kube.client import PatchRequest
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from support.builders.ray_service import (
    a_cluster_config,
    a_group,
    a_ray_service,
    a_serve_config,
    a_strategy,
)
from support.servers import raybus_up
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared
from support.waiting import eventually_true

RETURNS: Final = "returns actions"
PROBE: Final = Path(__file__).parent / "hops_probe"
SETTLING_SECONDS: Final = 15.0
REST_SECONDS: Final = 20.0
"""Seconds for which the processes are observed at rest.

A hand-over of work that also occurs in this time does not count for any change.
"""
INTERVAL: Final = 3
"""Seconds between two steps of the upgrade."""
MIN_SECONDS_BETWEEN_REQUESTS: Final = 0.1
"""Minimum seconds between two equal requests.

The probe records a request when it is sent and when it is answered, so an equal record that follows
sooner is the answer.
"""
RECORDER: Final = "libs/common/src/common/runtime/events.py:"
ROUTES: Final = {each.kind for each in (GATEWAY, HTTP_ROUTE, GRPC_ROUTE)}


class ProbedHandOver(msgspec.Struct, frozen=True, array_like=True):
    """A hand-over of work that the probe recorded: time, kind, and the functions on the stack."""

    at: float
    what: str
    functions: tuple[str, ...]


class HopPath(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of raybus through which one change passed."""

    name: str
    functions: list[str]
    """`path:name` of each function, in the order of their first appearance."""

    @property
    def files(self) -> list[str]:
        """The files in which `functions` are defined, without repetition."""
        return list(dict.fromkeys(function.partition(":")[0] for function in self.functions))


class HopFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of the benchmark."""

    ways: list[HopPath]


async def measure(folder: Path) -> HopFigures:
    """Trace a scale-up and an upgrade step on a new control plane; probes write into `folder`."""
    paths = os.pathsep.join(
        filter(None, (str(PROBE), os.environ.get("PYTHONPATH")))
    )  # this checkout's probe, not an installed one
    environment = {"PYTHONPATH": paths, "RAYBUS_HOPS": str(folder)}
    async with rig.fresh() as bench_rig, heads.played():
        async with bench_rig.control_plane.api() as api:
            definitions = read_manifests(prepared(GATEWAY_CRDS))
            await api.apply_definitions(
                [
                    definition
                    for definition in definitions
                    if definition["spec"]["names"]["kind"] in ROUTES
                ]
            )
        up = raybus_up.started(
            bench_rig.work / "up",
            "--kubeconfig",
            str(bench_rig.kubeconfig),
            environment=environment,
        )
        with up as running:
            await running.ready(within=120)
            async with asyncio.TaskGroup() as group:
                gateways = group.create_task(GatewayController(bench_rig.kube, ALONE).run())
                ways = [
                    await _trace_scale_up(bench_rig, folder),
                    await _trace_upgrade_step(bench_rig, folder),
                ]
                gateways.cancel()
    return HopFigures(ways=ways)


async def _trace_scale_up(bench_rig: Rig, folder: Path) -> HopPath:
    """Add a worker to an idle RayCluster; return the functions called until its pod was created."""
    async with background.watching(bench_rig, background.CLUSTERS, background.is_ready) as ready:
        await background.create_cluster(bench_rig, ALONE, "scaled", workers=1)
        await ready.count(1)
    emit("a RayCluster is ready; seeing what happens at rest")
    rest = await _list_idle_hand_overs(folder)
    began = time.monotonic()
    larger = background.a_cluster("scaled", 2)["spec"]
    async with background.watching(bench_rig, background.PODS, background.is_running) as running:
        await running.count(2)
        await bench_rig.kube.patch(
            RAY_CLUSTER, ALONE, "scaled", PatchRequest(body={"spec": larger})
        )
        await running.count(3)
    return _find_hop_path(
        "a RayCluster is scaled up",
        folder,
        rest,
        lambda hand_over: hand_over.at > began,
        _is_to("POST", "/pods"),
    )


async def _trace_upgrade_step(bench_rig: Rig, folder: Path) -> HopPath:
    """Upgrade a RayService in steps; return the functions called from one write to the next."""
    strategy = a_strategy(surge=50, step=10, interval=INTERVAL)
    config = a_cluster_config(a_group(minReplicas=1), enableInTreeAutoscaling=True)
    service = a_ray_service(
        config=config, upgradeStrategy=strategy, rayClusterDeletionDelaySeconds=0
    )
    del service["metadata"]["namespace"]
    await bench_rig.kube.create(RAY_SERVICE, ALONE, service)
    await _until(
        bench_rig,
        lambda status: status["activeServiceStatus"].get("trafficRoutedPercent") == 100,
        "it serves",
    )
    emit("a RayService is ready; seeing what happens at rest")
    rest = await _list_idle_hand_overs(folder)
    began = time.monotonic()
    later = a_cluster_config(
        a_group(minReplicas=1), image="rayproject/ray:2.53.0", enableInTreeAutoscaling=True
    )
    patch = PatchRequest(
        body={"spec": {"rayClusterConfig": later, "serveConfigV2": a_serve_config(message="v2")}}
    )
    await bench_rig.kube.patch(RAY_SERVICE, ALONE, "demo", patch)
    pending = "pendingServiceStatus"
    await _until(
        bench_rig,
        lambda status: status.get(pending, {}).get("trafficRoutedPercent", 0) >= 70,
        "seven steps",
    )
    is_write = _is_to("PATCH", "/httproutes/")
    seen = [
        hand_over
        for hand_over in _read_hand_overs(folder)
        if hand_over.at > began and is_write(hand_over)
    ]
    writes = [
        hand_over
        for last, hand_over in pairwise([seen[0], *seen])
        if hand_over is last or hand_over.at - last.at > MIN_SECONDS_BETWEEN_REQUESTS
    ]
    ways = [
        _find_hop_path(
            "an upgrade moves one step",
            folder,
            rest,
            partial(_comes_after, last),
            partial(_is_from, write.at),
        )
        for last, write in pairwise(writes)
        if write.at - last.at > INTERVAL / 2
    ]
    return min(ways, key=lambda hand_over: len(hand_over.functions))


def _comes_after(sent: ProbedHandOver, hand_over: ProbedHandOver) -> bool:
    """Return whether `hand_over` comes after the request `sent` and is not the answer to it."""
    is_answer = hand_over.at < sent.at + MIN_SECONDS_BETWEEN_REQUESTS and (
        hand_over.what,
        hand_over.functions,
    ) == (
        sent.what,
        sent.functions,
    )
    return hand_over.at > sent.at and not is_answer


def _is_from(at: float, hand_over: ProbedHandOver) -> bool:
    return hand_over.at >= at


async def _until(
    bench_rig: Rig, holds: Callable[[dict[str, dict[str, int]]], bool], what: str
) -> None:
    async def is_so() -> bool:
        body = msgspec.json.decode(await bench_rig.kube.get(RAY_SERVICE, ALONE, "demo"))
        return holds(body.get("status", {"activeServiceStatus": {}}))

    await eventually_true(is_so, within=120.0, every=0.05, what=what)


# --- what the probes wrote ------------------------------------------------------------------------


async def _list_idle_hand_overs(folder: Path) -> frozenset[tuple[str, tuple[str, ...]]]:
    """Return the hand-overs that occur while no object is changed: pairs of kind and functions."""
    await asyncio.sleep(SETTLING_SECONDS)
    began = time.monotonic()
    await asyncio.sleep(REST_SECONDS)
    return frozenset(
        (hand_over.what, hand_over.functions)
        for hand_over in _read_hand_overs(folder)
        if hand_over.at > began
    )


def _read_hand_overs(folder: Path) -> list[ProbedHandOver]:
    decoder = msgspec.json.Decoder(ProbedHandOver)
    lines = [line for file in folder.iterdir() for line in file.read_bytes().split(b"\n")[:-1]]
    hand_overs = (decoder.decode(line) for line in lines)
    return sorted(
        (
            hand_over
            for hand_over in hand_overs
            if not any(function.startswith(RECORDER) for function in hand_over.functions)
        ),
        key=lambda hand_over: hand_over.at,
    )


def _is_to(verb: str, path: str) -> Callable[[ProbedHandOver], bool]:
    return lambda hand_over: hand_over.what.startswith(f"{verb} ") and path in hand_over.what


def _find_hop_path(
    name: str,
    folder: Path,
    rest: frozenset[tuple[str, tuple[str, ...]]],
    begins: Callable[[ProbedHandOver], bool],
    ends: Callable[[ProbedHandOver], bool],
) -> HopPath:
    functions: dict[str, None] = {}
    for hand_over in _read_hand_overs(folder):
        if begins(hand_over) and (
            hand_over.what == RETURNS or (hand_over.what, hand_over.functions) not in rest
        ):
            functions |= dict.fromkeys(reversed(hand_over.functions))
            if ends(hand_over):
                return HopPath(name=name, functions=list(functions))
    raise SystemExit(f"hops: {name}: the change was never seen to end")


def table(figures: HopFigures) -> Table:
    """Build the table: the number of functions and files that each change passes through."""
    shown = Table(
        "way",
        "functions",
        "files",
        title="functions from a change to its write",
        title_justify="left",
    )
    for way in figures.ways:
        shown.add_row(way.name, str(len(way.functions)), str(len(way.files)))
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Trace a scale-up and an upgrade step; print the counts, and write the functions to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-o",
        choices=["table", "json"],
        default="table",
        help="what goes to standard output (table)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=report.OUTPUT / "hops",
        help="folder of the lists (build/bench/hops)",
    )
    asked = parser.parse_args(arguments)
    pod_network.enter("bench.hops")
    report.keep_stdout_clean()
    folder = asked.out / "probes"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    figures = report.measured(measure(folder))
    (asked.out / "functions.json").write_bytes(msgspec.json.format(msgspec.json.encode(figures)))
    report.show(figures, lambda: table(figures), form=asked.o)
    return 0


if __name__ == "__main__":
    sys.exit(main())
