"""The user's settings for the upgrades of a RayService: `raybus.io/…` annotations and the spec.

Without annotations an upgrade behaves as in KubeRay, except that a missed progress deadline is
reported. An illegal value counts as absent and is listed in `problems` with the legal values. An
edited annotation takes effect immediately.
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
"""Default number of earlier specs to keep, as for a Deployment's `revisionHistoryLimit`."""
MAX_HISTORY_LENGTH: Final = 99
MAX_INTERVAL: Final = 2**31 - 1
"""Maximum `intervalSeconds` that the CRD allows."""
_APPROVAL: Final = re2.compile(
    r"(?P<cluster>[^/]+)/(?P<weight>[0-9]{1,3})(@(?P<generation>[0-9]{1,19}))?"
)
T = TypeVar("T")


class OnDeadline(StrEnum):
    """What happens to an upgrade that missed its progress deadline, in addition to a report."""

    ROLLBACK = "Rollback"
    PAUSE = "Pause"
    WAIT = "Wait"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A user's approval that an upgrade continues after a pause in its UpgradePolicy."""

    cluster: str
    """Name of the pending RayCluster, so that the approval applies to no other upgrade."""
    weight: int
    """Percent of the traffic at which the upgrade paused."""
    generation: int | None = None
    """The RayService's `metadata.generation` when the user approved; None if unknown."""

    def holds(self, cluster: str, weight: int, *, was_edited: bool) -> bool:
        """Return whether the approval ends the pause of the upgrade to `cluster` at `weight`.

        An approval without a generation counts only for the cluster's first Serve config. If the
        config was edited since (`was_edited`), the user may have meant an earlier one.
        """
        is_known = self.generation is not None or not was_edited
        return is_known and self.cluster == cluster and self.weight >= weight


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings for upgrades, as read from the annotations of a RayService."""

    pauses: bool = False
    """Whether the user has paused the upgrade."""
    aborts: bool = False
    """Whether the service must stay on its active cluster, or roll back to it."""
    promotes: bool = False
    """Whether the upgrade skips steps and pauses, so that only ready capacity limits it."""
    deadline: timedelta = DEFAULT_DEADLINE
    """Maximum time that an upgrade may take without progress."""
    on_deadline: OnDeadline = OnDeadline.WAIT
    unavailable: int = 0
    """Maximum percent of capacity that may be missing while traffic moves in steps."""
    approved: Approval | None = None
    """The user's approval to continue after a pause; None if there is none."""
    parity: bool = True
    """Whether the new cluster gets more traffic only when it has as many autoscaled replicas as the
    old cluster uses for this traffic.
    """
    history: int = DEFAULT_HISTORY
    """Number of earlier specs to keep as ControllerRevisions."""
    problems: tuple[str, ...] = ()
    """A message for each illegal value of an annotation."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's `clusterUpgradeOptions`."""

    surge: int = 100
    """Maximum percent by which the capacities of both clusters together may exceed 100."""
    step: int = 100
    """Percent of the traffic that moves in one step."""
    interval: timedelta = timedelta(seconds=1)
    """Minimum time between two traffic moves."""
    bake: timedelta = timedelta(0)
    """Time for which the old cluster keeps its capacity after all traffic has moved."""
    unavailable: int = 0
    """Maximum percent by which the capacities of both clusters together may fall below 100."""

    @property
    def may_progress(self) -> bool:
        """Return whether these options allow the upgrade to progress at all."""
        return self.step > 0 and (self.surge > 0 or self.unavailable > 0)

    @property
    def floor(self) -> int:
        """Return the minimum of the capacities of both clusters together, in percent."""
        return 100 - self.unavailable

    def needed(self, weight: int) -> int:
        """Return the minimum capacity of a cluster with this traffic weight, both in percent.

        The capacity that may be missing is divided in proportion to the weights.
        """
        return max(min(weight, 1), weight * self.floor // 100)

    def carried(self, capacity: int) -> int:
        """Return the maximum weight for which `capacity` suffices (see `needed`), in percent."""
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
    """Return `intervalSeconds` of `clusterUpgradeOptions`, limited to the range of the CRD.

    None if the field is missing or not a whole number.
    """
    seconds = options.get("intervalSeconds")
    return (
        timedelta(seconds=min(max(seconds, 0), MAX_INTERVAL)) if isinstance(seconds, int) else None
    )


def interval_of(service: RayService) -> timedelta:
    """Return the minimum time between two steps in the spec of a RayService; zero if unset."""
    return interval(service.raw_upgrade_options) or timedelta(0)


def policy_of(options: Json, *, unavailable: int) -> Policy | None:
    """Read `clusterUpgradeOptions`; None if step size or interval is missing or not a number.

    `unavailable` is the maximum percent of capacity that may be missing.
    """
    surge, step = options.get("maxSurgePercent"), options.get("stepSizePercent")
    length = interval(options)
    if not isinstance(step, int) or length is None:
        return None
    surge = surge if isinstance(surge, int) else 100
    policy = Policy(surge=surge, step=step, interval=length, unavailable=unavailable)
    if step > 0 or surge > 0:
        return policy
    # Step and surge are 0, so the capacity that may be missing determines the step size.
    return msgspec.structs.replace(policy, step=policy.carried(unavailable))


class _Reader:
    """Reads typed annotations and collects a problem for each illegal value."""

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
        """Return the user's approval; None if it is absent, illegal or for another generation."""
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
        """Record that an annotation is illegal, and return `default`.

        `legal` describes the legal values, and `instead` says what happens now.
        """
        self.problems.append(f'{name} "{self._held[name]}" is not {legal}; {instead}')
        return default
