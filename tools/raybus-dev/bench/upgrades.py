"""How long do upgrades of a RayService take on real Ray? Optionally compared with a peer.

    make bench-upgrades [ROUNDS=3] [PEER='CMD'] [PEER_CRDS=DIR]

A peer is another operator. The run uses its own one-node cluster with Envoy Gateway and no load.
Each operator upgrades one service in steps of 25 %, 2 s apart, with a surge of 50 %, then
blue/green, several times each. With these steps, traffic cannot move completely in less than 6 s
(the rule); the remaining time is that of pods, Ray and the operator. Goals: at most 1.05 times the
rule; the last upgrade as fast as the first; in total at most the peer's time, and 0.9 times the
peer's for blue/green.
"""

import argparse
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.table import Table

from bench import chart, contenders, report
from bench.chart import Bar
from bench.contenders import Peer
from bench.goals import FigureGoal, judged
from bench.report import OUTPUT, emit
from e2e import upgrade_status
from e2e.conftest import Rig, connected
from e2e.greeter import BlueGreen, Greeter, Options
from localcluster.demo.cluster_state import Kubectl
from localcluster.demo.scenario import DemoOptions, Scenario
from localcluster.demo.view import View
from support import node
from support.manifests import ROOT

STEPS: Final = Options(step=25, interval=2, surge=50, replicas=1)
"""The options of upgrades in steps.

Every capacity needs one replica, so that no replica starts between two steps.
"""
RULE: Final = 6.0
"""Minimum seconds from the first share of traffic to the last, which follow from `STEPS`.

There are four shares (25, 50, 75, 100 %), 2 s apart.
"""
MAX_RATIO_TO_RULE: Final = 1.05
MAX_RATIO_TO_FIRST: Final = 1.1
"""Goal: maximum duration of the last upgrade relative to the first.

Pods and Ray vary by some percent.
"""
MAX_RATIO_TO_PEER: Final = {"in steps": 1.0, "blue/green": 0.9}


class UpgradeDurations(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one upgrade and of its phases, in seconds."""

    total: float
    """Seconds from the start of `kubectl apply` to the promotion."""
    accepted: float
    """Seconds from `kubectl apply` until the status names the pending cluster."""
    ready: float = 0.0
    """Seconds from the end of `accepted` until the pending cluster gets its first capacity.

    In this time, pods and Ray start.
    """
    carrying: float = 0.0
    """Seconds from the first capacity until the first share of traffic.

    In this time, Serve starts replicas.
    """
    moving: float = 0.0
    """Seconds from the first share of traffic to the promotion."""


class UpgradeContender(msgspec.Struct, frozen=True, kw_only=True):
    """All upgrades under one operator."""

    name: str
    in_steps: list[UpgradeDurations]
    blue_green: list[UpgradeDurations]

    @property
    def kinds(self) -> dict[str, list[UpgradeDurations]]:
        """The durations of the upgrades, by the kind of upgrade."""
        return {"in steps": self.in_steps, "blue/green": self.blue_green}


class UpgradesResult(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of one run of the benchmark; raybus is the first contender."""

    contenders: list[UpgradeContender]

    @property
    def goals(self) -> list[FigureGoal]:
        """The goals of this benchmark, with their results."""
        own, *others = self.contenders
        moving = median(upgrade.moving for upgrade in own.in_steps)
        totals = [upgrade.total for upgrade in own.in_steps]
        return [
            FigureGoal(
                figure="an upgrade in steps, from the first share to promotion",
                value=f"{moving:.2f} s",
                goal=f"{MAX_RATIO_TO_RULE:g} × the rule of {RULE:g} s",
                is_reached=moving <= MAX_RATIO_TO_RULE * RULE,
            ),
            FigureGoal(
                figure="the last upgrade in steps beside the first",
                value=f"{totals[-1]:.1f} and {totals[0]:.1f} s",
                goal=f"{MAX_RATIO_TO_FIRST:g} × the first",
                is_reached=totals[-1] <= MAX_RATIO_TO_FIRST * totals[0],
            ),
            *(
                _compare_with_others(kind, durations, [other.kinds[kind] for other in others])
                for kind, durations in own.kinds.items()
            ),
        ]


def _compare_with_others(
    kind: str, own: Sequence[UpgradeDurations], others: Sequence[Sequence[UpgradeDurations]]
) -> FigureGoal:
    total, most = _get_total_seconds(own), MAX_RATIO_TO_PEER[kind]
    beside = "".join(f", {_get_total_seconds(other):.1f} s of the peer" for other in others)
    is_reached = total <= most * _get_total_seconds(others[0]) if others else None
    figure = f"an upgrade {kind}, from apply to promotion"
    return FigureGoal(
        figure=figure,
        value=f"{total:.1f} s{beside}",
        goal=f"{most:g} × peer",
        is_reached=is_reached,
    )


def _get_total_seconds(upgrades: Sequence[UpgradeDurations]) -> float:
    return median(upgrade.total for upgrade in upgrades)


async def measure(
    kubeconfig: Path, kubectl_path: Path, rounds: int, peer: Peer | None
) -> UpgradesResult:
    """Measure raybus, then scale it to zero and measure the peer on the same cluster.

    `rounds` is the number of upgrades of each kind.
    """
    kubectl = Kubectl(binary=kubectl_path, kubeconfig=kubeconfig)
    async with connected(kubectl, user_agent="bench") as kube:
        rig = Rig(kubectl=kubectl, kube=kube, has_gateway=True)
        options = DemoOptions(manifests=ROOT / "deploy", least_requests=0)
        await Scenario(options, kubectl, kube, View()).install()
        measured = [await _measure("raybus", rig, rounds)]
        if peer is not None:
            await kubectl.run("scale", "deployment", "--all", "-n", "raybus", "--replicas=0")
            others = ("-l", "app.kubernetes.io/name!=nats")
            await kubectl.run(
                "wait", "pod", "-n", "raybus", *others, "--for=delete", "--timeout=120s"
            )
            if peer.crds is not None:
                await kubectl.run(
                    "apply", "--server-side", "--force-conflicts", "-f", str(peer.crds)
                )
            log = OUTPUT / "peer.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            with peer.running(kubeconfig, log):
                measured.append(await _measure(peer.name, rig, rounds))
    return UpgradesResult(contenders=measured)


async def _measure(name: str, rig: Rig, rounds: int) -> UpgradeContender:
    return UpgradeContender(
        name=name,
        in_steps=await _measure_upgrades(
            f"{name}, in steps", Greeter(rig, STEPS), rounds, _upgrade_in_steps
        ),
        blue_green=await _measure_upgrades(
            f"{name}, blue/green",
            Greeter(rig, BlueGreen(drains=False)),
            rounds,
            _upgrade_blue_green,
        ),
    )


async def _measure_upgrades(
    what: str,
    greeter: Greeter,
    rounds: int,
    upgrade: Callable[[Greeter], Awaitable[UpgradeDurations]],
) -> list[UpgradeDurations]:
    emit(f"{what}: the service starts")
    await greeter.start()
    durations: list[UpgradeDurations] = []
    for number in range(rounds):
        durations.append(await upgrade(greeter))
        emit(f"{what}, {number + 1} of {rounds}: {durations[-1].total:.1f} s")
    await greeter.stop()
    return durations


async def _upgrade_in_steps(greeter: Greeter) -> UpgradeDurations:
    durations, new = await _upgrade(greeter)
    times = upgrade_status.times(greeter.history, greeter.moves, new)
    return msgspec.structs.replace(
        durations, ready=times.ready, carrying=times.carrying, moving=times.moving
    )


async def _upgrade_blue_green(greeter: Greeter) -> UpgradeDurations:
    return (await _upgrade(greeter))[0]


async def _upgrade(greeter: Greeter) -> tuple[UpgradeDurations, str]:
    """Upgrade once and wait until the old cluster is deleted.

    Return the durations and the name of the new cluster.
    """
    async with greeter.followed() as history:
        began = time.time()  # noqa: TID251  (compared with the history's own wall clock)
        old = await greeter.upgrade()
        new = await greeter.wait_for_promotion(old)
    accepted = upgrade_status.first(history, lambda moment: moment.pending == new)
    promoted = upgrade_status.first(history, lambda moment: moment.active == new)
    return UpgradeDurations(
        total=round(promoted - began, 2), accepted=round(accepted - began, 2)
    ), new


def table(result: UpgradesResult) -> Table:
    """Build the table of upgrades."""
    shown = Table(
        "seconds",
        "total",
        "accepted",
        "pods and Ray",
        "Serve's replicas",
        "traffic moves",
        title="upgrades of a RayService, from apply to promotion",
        title_justify="left",
    )
    for contender in result.contenders:
        for kind, upgrades in contender.kinds.items():
            for number, upgrade in enumerate(upgrades, start=1):
                parts = [
                    f"{part:.2f}" if part else ""
                    for part in (upgrade.accepted, upgrade.ready, upgrade.carrying, upgrade.moving)
                ]
                shown.add_row(f"{contender.name}, {kind}, {number}", f"{upgrade.total:.1f}", *parts)
    return shown


def picture(result: UpgradesResult) -> str:
    """Draw the phases of each upgrade as SVG."""
    rows = [
        Bar(
            f"{contender.name}, {kind}, {number}",
            {
                "accepted": upgrade.accepted,
                "pods and Ray": upgrade.ready,
                "Serve's replicas": upgrade.carrying,
                "traffic moves": upgrade.moving,
                "not cut into parts": upgrade.total
                - upgrade.accepted
                - upgrade.ready
                - upgrade.carrying
                - upgrade.moving,
            },
        )
        for contender in result.contenders
        for kind, upgrades in contender.kinds.items()
        for number, upgrade in enumerate(upgrades, start=1)
    ]
    return chart.bars(rows, title="upgrades of a RayService, from apply to promotion", unit="s")


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, default=3, help="upgrades of each kind (3)"
    )
    contenders.add_peer_options(parser)
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the figures"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: upgrade at least once")
    options.peer = contenders.peer_of(options, parser)
    return options


def main() -> int:
    """Measure, print and write the figures. Return 1 if a goal is missed, else 0."""
    options = parse_arguments()
    report.keep_stdout_clean()
    with node.running("bench") as known:
        result = report.measured(
            measure(known.kubeconfig, known.binaries["kubectl"], options.rounds, options.peer)
        )
    report.show(result, lambda: table(result), form=options.o)
    report.write(result, OUTPUT / "upgrades", picture=picture(result))
    return judged("upgrades", result.goals)


if __name__ == "__main__":
    sys.exit(main())
