"""The user's settings for the upgrades of a RayService: `raybus.io/…` annotations and the spec.

Without annotations an upgrade behaves as in KubeRay, except that a missed progress deadline is
reported. A value that is not legal counts as absent and is listed in `problems` with the legal
values. An edit of an annotation does not change `metadata.generation`, so it takes effect
immediately.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
import re2

from common import durations, labels
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.upgrade import weighted_route

DEFAULT_DEADLINE: Final = timedelta(minutes=10)
MAX_UNAVAILABLE_PERCENT: Final = 99
DEFAULT_HISTORY: Final = 10
"""The default of a Deployment's `revisionHistoryLimit`."""
MAX_HISTORY_LENGTH: Final = 99
MAX_INTERVAL: Final = 2**31 - 1
"""Highest `intervalSeconds` that the CRD admits."""
_APPROVAL: Final = re2.compile(
    r"(?P<cluster>[^/]+)/(?P<weight>[0-9]{1,3})(@(?P<generation>[0-9]{1,19}))?"
)
T = TypeVar("T")


class OnDeadline(StrEnum):
    """Reaction to an upgrade that missed its progress deadline, besides reporting it."""

    ROLLBACK = "Rollback"
    PAUSE = "Pause"
    WAIT = "Wait"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A user's approval to continue past a pause of an UpgradePolicy."""

    cluster: str
    """The pending RayCluster, so that the approval does not apply to another upgrade."""
    weight: int
    """Percent of the traffic at which the upgrade paused."""
    generation: int | None = None
    """The RayService's `metadata.generation` when the user approved; None if unknown."""

    def holds(self, cluster: str, weight: int, *, was_edited: bool) -> bool:
        """Return whether the approval ends the pause of the upgrade to `cluster` at `weight`.

        An approval without a generation counts only for the cluster's first Serve config, since
        after an edit (`was_edited`) it may have been meant for another config.
        """
        is_known = self.generation is not None or not was_edited
        return is_known and self.cluster == cluster and self.weight >= weight


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that apply to the present spec."""

    pauses: bool = False
    """Whether the upgrade is paused."""
    aborts: bool = False
    """Whether the service stays on its active cluster, or rolls back to it."""
    promotes: bool = False
    """Whether the upgrade skips steps and pauses, and is limited by ready capacity only."""
    deadline: timedelta = DEFAULT_DEADLINE
    """Time that an upgrade may spend without progress."""
    on_deadline: OnDeadline = OnDeadline.WAIT
    unavailable: int = 0
    """Percent of capacity that may be missing while traffic moves in steps."""
    approved: Approval | None = None
    """The last pause of an UpgradePolicy that the user approved."""
    parity: bool = True
    """Whether traffic waits until the new cluster has as many autoscaled replicas as the old
    cluster uses for that traffic.
    """
    history: int = DEFAULT_HISTORY
    """Number of earlier specs to keep as ControllerRevisions."""
    problems: tuple[str, ...] = ()
    """A message for each value that is not legal."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's `clusterUpgradeOptions`."""

    surge: int = 100
    """Percent of capacity beyond 100 that both clusters may have together."""
    step: int = 100
    """Percent of the traffic that moves at once."""
    interval: timedelta = timedelta(seconds=1)
    """Minimum time between two traffic moves."""
    bake: timedelta = timedelta(0)
    """Time that the old cluster keeps its capacity after all traffic has moved to the new one."""
    unavailable: int = 0
    """Percent of capacity that both clusters together may lack below 100 during the upgrade."""

    @property
    def may_progress(self) -> bool:
        """Return whether these options allow the upgrade to progress at all."""
        return self.step > 0 and (self.surge > 0 or self.unavailable > 0)

    @property
    def floor(self) -> int:
        """Return the minimum of both clusters' capacities together, in percent."""
        return 100 - self.unavailable

    def needed(self, weight: int) -> int:
        """Return the minimum capacity of a cluster for its weight, in percent.

        The missing capacity is divided among the clusters in proportion to their traffic.
        """
        return max(min(weight, 1), weight * self.floor // 100)

    def carried(self, capacity: int) -> int:
        """Return the maximum weight for a capacity, in percent, if the allowed part is missing."""
        return min(100, capacity * 100 // self.floor)


def read_controls(service: RayService) -> Controls:
    """Read the annotations of a RayService."""
    read = _Reader(service)
    return Controls(
        pauses=read.switch(labels.PAUSE),
        aborts=read.switch(labels.ABORT, or_generation=True),
        promotes=read.switch(labels.PROMOTE, or_generation=True),
        deadline=read.deadline(),
        on_deadline=read.on_deadline(),
        unavailable=read.number(labels.MAX_UNAVAILABLE, 0, most=MAX_UNAVAILABLE_PERCENT),
        approved=read.approval(),
        parity=read.switch(labels.CAPACITY_PARITY, default=True),
        history=read.number(labels.HISTORY_LIMIT, DEFAULT_HISTORY, most=MAX_HISTORY_LENGTH),
        problems=(
            *read.problems,
            *([odd] if (odd := weighted_route.invalid_route_name(service)) is not None else []),
        ),
    )


def interval(options: Json) -> timedelta | None:
    """Return `intervalSeconds` of `clusterUpgradeOptions`, clamped to the range of the CRD.

    None if it is missing or not a whole number.
    """
    seconds = options.get("intervalSeconds")
    return (
        timedelta(seconds=min(max(seconds, 0), MAX_INTERVAL)) if isinstance(seconds, int) else None
    )


def interval_of(service: RayService) -> timedelta:
    """Return the minimum time between two steps by the spec of a RayService; zero if unset."""
    return interval(service.raw_upgrade_options) or timedelta(0)


def policy_of(options: Json, *, unavailable: int) -> Policy | None:
    """Read `clusterUpgradeOptions`; None if the step or the interval is missing or not a number.

    `unavailable` is the percent of capacity that may be missing.
    """
    surge, step = options.get("maxSurgePercent"), options.get("stepSizePercent")
    length = interval(options)
    if not isinstance(step, int) or length is None:
        return None
    surge = surge if isinstance(surge, int) else 100
    policy = Policy(surge=surge, step=step, interval=length, unavailable=unavailable)
    if step > 0 or surge > 0:
        return policy
    # Step and surge are 0, so the steps are as large as the missing capacity.
    return msgspec.structs.replace(policy, step=policy.carried(unavailable))


class _Reader:
    """Reads typed annotations and collects a problem for each value that is not legal."""

    def __init__(self, service: RayService) -> None:
        self._held = service.metadata.annotations
        self._generation = service.metadata.generation
        self.problems: list[str] = []

    def switch(self, name: str, *, default: bool = False, or_generation: bool = False) -> bool:
        text = self._held.get(name, "").strip()
        if text in {"", "true", "false"}:
            return text == "true" or (text == "" and default)
        if or_generation and text.isascii() and text.isdigit():
            return text.lstrip("0") == str(self._generation)
        legal = '"true", "false" or a metadata.generation' if or_generation else '"true" or "false"'
        return self._odd(name, legal, "it counts as absent", default)

    def deadline(self) -> timedelta:
        name, default = labels.PROGRESS_DEADLINE, DEFAULT_DEADLINE
        length = durations.parse_or_seconds(self._held[name]) if name in self._held else default
        if length is not None and length > timedelta(0):
            return length
        legal = "a positive duration such as 10m or a number of seconds"
        return self._odd(name, legal, f"{durations.text(default)} holds", default)

    def number(self, name: str, default: int, *, most: int) -> int:
        text = self._held.get(name, str(default)).strip()
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most:
            return int(text)
        return self._odd(name, f"a whole number from 0 to {most}", f"{default} holds", default)

    def approval(self) -> Approval | None:
        """Return the approval for the present generation.

        An approval for an earlier generation is ignored without a problem.
        """
        text = self._held.get(labels.APPROVED_STEP, "").strip()
        if not text:
            return None
        match = _APPROVAL.fullmatch(text)
        if match is None or int(match["weight"]) > 100:
            legal = "<RayCluster>/<weight from 0 to 100>@<metadata.generation>"
            return self._odd(labels.APPROVED_STEP, legal, "it counts as absent", None)
        generation = int(match["generation"]) if match["generation"] else None
        if generation not in {None, self._generation}:
            return None
        return Approval(
            cluster=match["cluster"], weight=int(match["weight"]), generation=generation
        )

    def on_deadline(self) -> OnDeadline:
        name, default = labels.ON_DEADLINE, OnDeadline.WAIT
        action = {member.value: member for member in OnDeadline}.get(
            self._held.get(name, default).strip()
        )
        return action or self._odd(
            name, "one of " + ", ".join(OnDeadline), f"{default} holds", default
        )

    def _odd(self, name: str, legal: str, instead: str, default: T) -> T:
        """Record that an annotation is not legal, and return `default`.

        `legal` describes the legal values, and `instead` says what applies.
        """
        self.problems.append(f'{name} "{self._held[name]}" is not {legal}; {instead}')
        return default
