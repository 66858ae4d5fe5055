"""Decide whether to send a Serve config to a cluster, and which one.

During an upgrade, the active cluster keeps the config that it was last sent, which is recorded in a
ControllerRevision. Spec rayservice §12.2, §12.7, §17.11; acceptance 25, 37, 69, 70, 78.
"""

from datetime import datetime, timedelta
from typing import ClassVar, Final

from common import labels
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import deployed_config, serve_config, serve_status, serve_writer
from common.ray.revision import RecordedConfig
from common.ray.view import ServeView, head_is_ready
from common.runtime.actions import Action, ActionEvents, EventTemplate, warning

SETTLING: Final = timedelta(seconds=5)
"""Time after a PUT during which no config is sent, since Serve may not report the PUT yet."""
REPEAT: Final = timedelta(seconds=1)
"""Minimum time until the same config is sent a second time. It doubles with each repetition."""
MAX_REPEAT_DELAY: Final = timedelta(minutes=10)
CHAIN: Final = "configs"
"""Name of the chain of actions that send configs. Failures in other chains do not stop them."""


class Submit(Action, frozen=True, kw_only=True):
    """Send a Serve config to a cluster, and record it before and after.

    A failure does not fail the plan, because only the user can correct its cause.
    """

    cluster: RayCluster
    given: RecordedConfig
    after: int = 0
    """Number of the cluster's newest record when it was decided to send the config."""
    capacity: int | None = None
    """The `target_capacity` to send with the config."""

    is_optional: ClassVar[bool] = True

    def __str__(self) -> str:
        capacity = "" if self.capacity is None else f" with capacity {self.capacity}"
        return f"send the Serve config to {self.cluster.metadata.name}{capacity}"


def decide(view: ServeView, goal: str, *, frozen: bool, now: datetime) -> str | None:
    """Return the Serve config to send to a cluster now; None if none is to be sent.

    `goal` is the config in the RayService's spec. A `frozen` cluster keeps the config that it has.
    """
    wanted, details = view.given if frozen else goal, view.serve.details
    if (
        wanted is None
        or serve_config.is_empty(wanted)
        or details is None
        or not head_is_ready(view.cluster)
    ):
        return None
    if is_backing_off(view, wanted, now=now) or view.parse(wanted).problem is not None:
        return None
    if view.given != wanted:
        is_due = may_repeat(view, wanted, now=now)
    elif not details.applications:  # the head may have been replaced and lost its state
        is_due = view.put_at is None or now >= view.put_at + SETTLING
    else:
        is_due = drift(view) is not None and may_repeat(view, wanted, now=now)
    return wanted if is_due else None


def submission(
    view: ServeView,
    service: RayService,
    *,
    frozen: bool,
    capacity: int | None = None,
    now: datetime,
) -> Submit | None:
    """Return the action that sends a config or a target capacity to a cluster now, or else None.

    A `frozen` cluster keeps its config. Without a `capacity` the cluster keeps the target capacity
    in its recorded config.
    """
    config, target = decide(view, service.serve_config, frozen=frozen, now=now), capacity
    difference = drift(view) if config is not None and config == view.given else None
    if target is None and view.record and view.given is not None:
        target = view.parse(view.given).target_capacity
    if config is None and target is not None and has_other_capacity(view, target, now=now):
        config = view.given
    return (
        None
        if config is None
        else submit_action(view, service, config, capacity, events_of(view.cluster, difference))
    )


def submit_action(
    view: ServeView, service: RayService, config: str, capacity: int | None, events: ActionEvents
) -> Submit:
    """Build the action that sends `config` and records it.

    If traffic moves in steps, the record keeps the upgrade strategy that the cluster began with.
    """
    kept = view.strategy if serve_writer.is_recorded(service) else None
    spec_hash = view.cluster.metadata.annotations.get(labels.SPEC_HASH, "")
    given = RecordedConfig(
        serve_config=config,
        spec_hash=spec_hash,
        upgrade_strategy=kept or service.raw_upgrade_strategy,
    )
    return Submit(
        cluster=view.cluster,
        given=given,
        after=view.record,
        capacity=capacity,
        events=events,
        chain=CHAIN,
    )


def events_of(cluster: RayCluster, drift: str | None) -> ActionEvents:
    """Return the Events that report sending a config.

    `drift` is the option in which Serve's config differs from the recorded one, if the config is
    sent for this reason.
    """
    where = cluster.metadata.namespaced_name
    sent = EventTemplate(
        "Update", "ServeApplications", "serve applications to the RayCluster {}"
    ).format(where)
    if drift is None:
        return sent
    note = f"RayCluster {where} runs another Serve config than the recorded one ({drift})"
    drifted = warning("ServeConfigDrifted", "Update", f"{note}; it gets the recorded one again")
    return ActionEvents(success=drifted, failure=sent.failure)


def drift(view: ServeView) -> str | None:
    """Return an option in which the config that Serve reports differs from the recorded one.

    None if there is none. If Serve gave the same report after two PUTs of the config, Serve itself
    causes the difference, which then does not count.
    """
    details = view.serve.details
    if view.given is None or details is None or not details.applications:
        return None
    differing, put = view.differences, view.put
    if not differing:
        return None
    is_sent = put is not None and put.config == view.given
    is_usual = (
        put is not None
        and put.reported == put.reported_before == deployed_config.fingerprint(details)
    )
    return None if is_sent and is_usual else differing[0]


def has(view: ServeView, config: str) -> bool:
    """Return whether a cluster has this config according to its record and to Serve's report."""
    return view.given == config and drift(view) is None


def has_other_capacity(view: ServeView, capacity: float, *, now: datetime) -> bool:
    """Return whether Serve's target capacity is not `capacity` and may be corrected now."""
    details = view.serve.details
    if (
        view.given is None
        or details is None
        or not details.applications
        or serve_status.capacity(details) == capacity
    ):
        return False
    is_refused = view.refused is not None and not view.refused.is_due(now)
    is_effective = view.put_at is None or not view.put_at <= now < view.put_at + SETTLING
    return not is_refused and is_effective and may_repeat(view, view.given, now=now)


def is_backing_off(view: ServeView, config: str | None, *, now: datetime) -> bool:
    """Return whether sending this config has failed and must not be repeated yet."""
    return (
        view.refused is not None and view.refused.config == config and not view.refused.is_due(now)
    )


def may_repeat(view: ServeView, config: str, *, now: datetime) -> bool:
    """Return whether a config may be sent now; the wait grows each time the same one is sent."""
    put, at = view.put, view.put_at
    if put is None or at is None or put.config != config:
        return True
    wait = min(REPEAT * 2.0 ** min(put.count - 1, 16), MAX_REPEAT_DELAY)
    return not at <= now < at + wait
