"""The user's settings for the upgrades of a RayService: annotations `raybus.io/…`, and `clusterUpgradeOptions` of the spec.

Absent means as KubeRay does, but for the deadline, which is only reported. A value that cannot be meant counts as absent, and is
named together with what is legal. Changing an annotation changes no generation, so each takes effect at once.
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
MOST_UNAVAILABLE: Final = 99
DEFAULT_HISTORY: Final = 10
"""As for a Deployment."""
MOST_HISTORY: Final = 99
LONGEST_INTERVAL: Final = 2**31 - 1
"""Seconds between two steps that the CRD admits."""
_APPROVAL: Final = re2.compile(
    r"(?P<cluster>[^/]+)/(?P<weight>[0-9]{1,3})(@(?P<generation>[0-9]{1,19}))?"
)
T = TypeVar("T")


class OnDeadline(StrEnum):
    """What happens to an upgrade that has not progressed for too long, besides a report."""

    ROLLBACK = "Rollback"
    PAUSE = "Pause"
    WAIT = "Wait"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of an UpgradePolicy that the user ended."""

    cluster: str
    """The pending RayCluster, so that it holds for no other upgrade."""
    weight: int
    """Percent of the traffic at which the upgrade was paused."""
    generation: int | None = None
    """The `metadata.generation` of the RayService that it is for; None if it names none."""

    def holds(self, cluster: str, weight: int, *, was_edited: bool) -> bool:
        """Return whether it ends a pause of this upgrade at a weight.

        One without a generation holds only for the first Serve config of the cluster: nobody knows for which of several it was given.
        """
        is_known = self.generation is not None or not was_edited
        return is_known and self.cluster == cluster and self.weight >= weight


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that hold for the spec as it is now."""

    pauses: bool = False
    """The upgrade does not progress."""
    aborts: bool = False
    """The service stays on its active cluster, or rolls back to it."""
    promotes: bool = False
    """The upgrade ignores steps and pauses, and follows ready capacity alone."""
    deadline: timedelta = DEFAULT_DEADLINE
    """Time that an upgrade may stay without progress."""
    on_deadline: OnDeadline = OnDeadline.WAIT
    unavailable: int = 0
    """Percent of capacity that may be missing while traffic moves in steps."""
    approved: Approval | None = None
    """The last pause of an UpgradePolicy that the user ended."""
    parity: bool = True
    """Traffic moves to no fewer autoscaled replicas than those that carry it."""
    history: int = DEFAULT_HISTORY
    """Number of earlier specs that are kept on record."""
    problems: tuple[str, ...] = ()
    """Problems of the values that cannot be meant."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's `clusterUpgradeOptions`."""

    surge: int = 100
    """Percent of capacity that both clusters may have beyond 100."""
    step: int = 100
    """Percent of the traffic that moves at once."""
    interval: timedelta = timedelta(seconds=1)
    """The shortest time between two moves of traffic."""
    bake: timedelta = timedelta(0)
    """How long the old cluster keeps its capacity once the new one has all of the traffic."""
    unavailable: int = 0
    """Percent of capacity that may be missing below 100 while both clusters share what room there is."""

    @property
    def may_progress(self) -> bool:
        """Return whether these options let an upgrade go on at all."""
        return self.step > 0 and (self.surge > 0 or self.unavailable > 0)

    @property
    def floor(self) -> int:
        """Return the least capacity, in percent, that both have together."""
        return 100 - self.unavailable

    def needed(self, weight: int) -> int:
        """Return the least capacity for a weight: the allowance is one of the sum, shared in proportion to traffic."""
        return max(min(weight, 1), weight * self.floor // 100)

    def carried(self, capacity: int) -> int:
        """Return the most traffic on a capacity of which the allowance may be missing."""
        return min(100, capacity * 100 // self.floor)


def of(service: RayService) -> Controls:
    """Return what the annotations of a RayService ask for."""
    read = _Reader(service)
    return Controls(
        pauses=read.switch(labels.PAUSE),
        aborts=read.switch(labels.ABORT, or_generation=True),
        promotes=read.switch(labels.PROMOTE, or_generation=True),
        deadline=read.deadline(),
        on_deadline=read.on_deadline(),
        unavailable=read.number(labels.MAX_UNAVAILABLE, 0, most=MOST_UNAVAILABLE),
        approved=read.approval(),
        parity=read.switch(labels.CAPACITY_PARITY, default=True),
        history=read.number(labels.HISTORY_LIMIT, DEFAULT_HISTORY, most=MOST_HISTORY),
        problems=(
            *read.problems,
            *([odd] if (odd := weighted_route.odd_name(service)) is not None else []),
        ),
    )


def interval(options: Json) -> timedelta | None:
    """Return `intervalSeconds` of `clusterUpgradeOptions`, held to what the CRD admits; None where it is missing, or is no number."""
    seconds = options.get("intervalSeconds")
    return (
        timedelta(seconds=min(max(seconds, 0), LONGEST_INTERVAL))
        if isinstance(seconds, int)
        else None
    )


def interval_of(service: RayService) -> timedelta:
    """Return the interval between two steps that the spec of a RayService asks for; none where it asks for none."""
    return interval(service.raw_upgrade_options) or timedelta(0)


def policy_of(options: Json, *, unavailable: int) -> Policy | None:
    """Return what `clusterUpgradeOptions` ask for; None where step or interval is missing, or is no number."""
    surge, step = options.get("maxSurgePercent"), options.get("stepSizePercent")
    length = interval(options)
    if not isinstance(step, int) or length is None:
        return None
    surge = surge if isinstance(surge, int) else 100
    found = Policy(surge=surge, step=step, interval=length, unavailable=unavailable)
    if step > 0 or surge > 0:
        return found
    return msgspec.structs.replace(
        found, step=found.carried(unavailable)
    )  # KubeRay takes no step beyond the surge


class _Reader:
    """Typed reads of annotations; what cannot be meant is noted."""

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
        """Return the approval for the spec as it is now; one that names an earlier generation is over, and no mistake."""
        text = self._held.get(labels.APPROVED_STEP, "").strip()
        if not text:
            return None
        found = _APPROVAL.fullmatch(text)
        if found is None or int(found["weight"]) > 100:
            legal = "<RayCluster>/<weight from 0 to 100>@<metadata.generation>"
            return self._odd(labels.APPROVED_STEP, legal, "it counts as absent", None)
        generation = int(found["generation"]) if found["generation"] else None
        if generation not in {None, self._generation}:
            return None
        return Approval(
            cluster=found["cluster"], weight=int(found["weight"]), generation=generation
        )

    def on_deadline(self) -> OnDeadline:
        name, default = labels.ON_DEADLINE, OnDeadline.WAIT
        found = {each.value: each for each in OnDeadline}.get(self._held.get(name, default).strip())
        return found or self._odd(
            name, "one of " + ", ".join(OnDeadline), f"{default} holds", default
        )

    def _odd(self, name: str, legal: str, instead: str, default: T) -> T:
        """Note what is wrong with a value, and return what holds instead."""
        self.problems.append(f'{name} "{self._held[name]}" is not {legal}; {instead}')
        return default
