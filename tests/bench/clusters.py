"""How quickly do N RayClusters get ready, and at what cost; beside another operator, if one is named.

    make bench-clusters [N=300] [PEER='CMD'] [PEER_CRDS=DIR] [IDLE=MINUTES] [FAIR=1]

A real API server, etcd, scheduler, controller-manager and NATS; simulated pods (kwok); the services as `raybus up` runs
them. Each contender gets a fresh control plane, one after the other. Machines differ and are shared: quote the ratios.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec

from bench import fairness, report, scale_up
from bench.contenders import Contender, Peer, Raybus
from bench.report import Result
from localcluster.errors import ClusterError

OUTPUT: Final = Path(__file__).parents[2] / "build" / "bench"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    clusters: int
    contenders: list[Contender]
    idle_minutes: float = 0.0
    is_fair: bool = False


async def run(wanted: Wanted) -> Result:
    """Measure one thing after another, and say which."""
    say(f"{wanted.clusters} clusters: the floor")
    floor = await scale_up.floor(wanted.clusters)
    figures: list[scale_up.Figures] = []
    fair: list[fairness.Fairness] = []
    for contender in wanted.contenders:
        say(f"{wanted.clusters} clusters: {contender.name}")
        figures.append(await scale_up.measure(contender, wanted.clusters, idle_minutes=wanted.idle_minutes))
        say(f"{contender.name}: {figures[-1].wall:.1f} s, the floor {floor.wall:.1f} s")
        if wanted.is_fair:
            say(f"{wanted.clusters} clusters, one of {fairness.HUGE} workers, and small ones: {contender.name}")
            fair.append(await fairness.measure(contender, wanted.clusters))
            say(f"{contender.name}: the longest wait for a head pod was {fair[-1].worst:.1f} s")
    return Result(floor=floor, contenders=figures, fairness=fair)


def say(line: str) -> None:
    """Tell the user what goes on."""
    sys.stderr.write(f"bench: {line}\n")
    sys.stderr.flush()


def asked(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=300, help="RayClusters to create (300)")
    parser.add_argument(
        "--peer", metavar="CMD", default="", help="another operator's command line; it reads KUBECONFIG"
    )
    parser.add_argument("--peer-crds", metavar="DIR", type=Path, help="the definitions that the peer needs")
    parser.add_argument("--idle", metavar="MINUTES", type=float, default=0.0, help="watch that long for idle writes")
    parser.add_argument("--fair", action="store_true", help="measure also how long small clusters wait in a crowd")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=OUTPUT, help="where figures and picture go (build/bench)"
    )
    found = parser.parse_args(arguments)
    if found.n < 1:
        parser.error(f"-n {found.n}: create at least one cluster")
    if found.peer_crds is not None and not found.peer_crds.is_dir():
        parser.error(f"--peer-crds {found.peer_crds}: no such folder")
    return found


def main() -> None:
    """Measure, print and write down."""
    options = asked()
    contenders: list[Contender] = [Raybus()]
    if options.peer:
        contenders.append(Peer(options.peer, options.peer_crds))
    wanted = Wanted(clusters=options.n, contenders=contenders, idle_minutes=options.idle, is_fair=options.fair)
    try:
        result = asyncio.run(run(wanted))
    except ClusterError as problem:
        raise SystemExit(f"bench: {problem}") from None
    report.show(result)
    say(f"written: {', '.join(str(path) for path in report.write(result, options.out))}")


if __name__ == "__main__":
    main()
