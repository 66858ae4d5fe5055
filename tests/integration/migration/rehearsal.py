"""A rehearsal with KubeRay's own operator: its objects handed over to raybus, and back again;
nothing of theirs may change.

    make rehearsal PEER='CMD' PEER_CRDS=DIR [RECORD=1]

`PEER` starts the operator on the cluster of `KUBECONFIG`; it must reach dashboards through the API
server (`--use-kubernetes-proxy`) and have the feature gates `stage.GATES`. A real API server, etcd,
scheduler and controller-manager; simulated pods (kwok); one process plays all heads, in a network
of its own; a Gateway controller that accepts everything. With `--record` what KubeRay left goes to
`tests/golden/kuberay/services`, where the tests take it over without an operator.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench import heads, rig
from bench.rig import Rig
from common.kube.resources import RAY_SERVICE
from integration.isolated import isolate, log_progress
from integration.migration import cast_of, peer, stage
from localcluster.errors import ClusterError
from support.kuberay import trees
from support.servers import raybus_up

BOTH_SECONDS: Final = 20.0
QUIET_SECONDS: Final = 8.0
AT_REST: Final = frozenset({"update rayservices/status"})
"""Writes of KubeRay every two seconds for a service with upgrades in steps, even at rest."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one run."""

    objects: int
    pods: int
    check: str
    """The output of `raybus migrate check` between the operators."""
    taken_over_seconds: float
    """Seconds from the end of KubeRay to the first step of raybus in an upgrade in progress."""
    written_by_raybus: dict[str, int]
    written_by_kuberay: dict[str, int]
    """KubeRay's writes after it got its objects back."""
    changed_by_raybus: list[str]
    changed_by_kuberay: list[str]
    """Fields that changed in services without an upgrade, except status and versions."""
    written_by_both: dict[str, int]
    """Writes during the time when both operators ran."""
    both_seconds: float = BOTH_SECONDS
    is_smooth: bool = True
    """Whether no pod and no cluster disappeared, and no weight decreased."""


async def rehearse(command: str, crds: Path, *, records: bool) -> Figures:
    """Hand the objects over to raybus and back."""
    async with rig.fresh(crds) as found, heads.played(), stage.built(found) as on:
        async with peer.running(command, found.kubeconfig, found.work / "peer.log"):
            await cast_of.appear(on)
            log_progress("KubeRay has made everything; two upgrades are on their way")
        before = await on.snapshot()
        if records:
            for name in cast_of.RECORDED:
                tree = trees.of_root(before, RAY_SERVICE.kind, name)
                log_progress(f"recorded {trees.save(name, tree).name}")
        output = await on.check()
        log_progress(f"raybus migrate check -o wide:\n{output}")
        mark, ended = found.audit.here(), time.monotonic()
        async with raybus(found):
            await on.until(
                cast_of.MOVING, cast_of.has_moved_on(before), "raybus goes on with the upgrade"
            )
            taken = time.monotonic() - ended
            await on.until(
                cast_of.MOVING, cast_of.is_served, "raybus ends the upgrade that KubeRay began"
            )
            await on.until(
                cast_of.BACK, cast_of.is_at_least(40), "raybus takes the other one further"
            )
        ours, during = found.audit.since(mark).changes, await on.snapshot()
        log_progress(
            f"raybus wrote {ours}; changed: {cast_of.changed(before, during) or 'nothing'}"
        )
        mark = found.audit.here()
        async with peer.running(command, found.kubeconfig, found.work / "peer.log"):
            await on.until(cast_of.BACK, cast_of.is_served, "KubeRay ends what raybus went on with")
            await quiet(found)
            theirs, after = found.audit.since(mark).changes, await on.snapshot()
            log_progress(
                f"KubeRay wrote {theirs}; changed: {cast_of.changed(during, after) or 'nothing'}"
            )
            mark = found.audit.here()
            async with raybus(found):
                await asyncio.sleep(BOTH_SECONDS)
                both = found.audit.since(mark).changes
        return Figures(
            objects=len(before),
            pods=sum(each["kind"] == "Pod" for each in before),
            check=output,
            taken_over_seconds=round(taken, 1),
            written_by_raybus=ours,
            written_by_kuberay=theirs,
            changed_by_raybus=cast_of.changed(before, during),
            changed_by_kuberay=cast_of.changed(during, after),
            written_by_both=both,
            is_smooth=not on.went_back and not cast_of.lost(before, after),
        )


@asynccontextmanager
async def raybus(found: Rig) -> AsyncGenerator[None]:
    """Run raybus for the length of a block."""
    with raybus_up.started(
        found.work / f"up-{time.monotonic_ns()}",
        "--kubeconfig",
        str(found.kubeconfig),
        environment={"RAYBUS_FEATURE_GATES": stage.GATES},
    ) as running:
        await running.ready(within=120)
        yield


async def quiet(found: Rig) -> None:
    """Wait until nothing has been written for a while."""
    while True:
        mark = found.audit.here()
        await asyncio.sleep(QUIET_SECONDS)
        if not found.audit.since(mark).changes.keys() - AT_REST:
            return


def asked(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", metavar="CMD", required=True, help="starts KubeRay's operator")
    parser.add_argument(
        "--peer-crds", metavar="DIR", type=Path, required=True, help="its config/crd/bases"
    )
    parser.add_argument(
        "--record", action="store_true", help="write what KubeRay left to tests/golden"
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Rehearse and print the figures; return 1 if something changed that must not change."""
    options = asked(sys.argv[1:])
    isolate("integration.migration.rehearsal")
    try:
        found = asyncio.run(rehearse(options.peer, options.peer_crds, records=options.record))
    except ClusterError as problem:
        raise SystemExit(f"rehearsal: {problem}") from None
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    return 0 if found.is_smooth and not found.changed_by_raybus else 1


if __name__ == "__main__":
    sys.exit(main())
