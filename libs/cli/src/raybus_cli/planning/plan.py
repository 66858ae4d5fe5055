"""The result of `raybus plan`: effect, changed fields, cost of each strategy, and quotas."""

from datetime import datetime
from typing import Final

import msgspec

from common.api.ray_cluster import RayCluster
from common.api.ray_service import DEFAULT_DELETION_DELAY, RayService
from common.api.ray_service import KIND as RAY_SERVICE
from common.feature_gates import Gates
from common.ray import serve_writer
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import Policy
from common.upgrade.receipt import UpgradeOutcome, receipt_of
from common.upgrade.traffic_record import WHOLE
from raybus_cli.planning import demand, differences, predict, steps
from raybus_cli.planning.demand import Amounts, QuotaCheck
from raybus_cli.planning.differences import SpecDifference
from raybus_cli.planning.policies import PolicyPlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.planning.surge import Surge, find_surge
from raybus_cli.reading.snapshot import Snapshot

NEW_CLUSTER: Final = "NewCluster"


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """Upgrade options of the command line; they replace those of the manifest for this plan.

    An option that is None does not replace the value in the manifest.
    """

    surge: int | None = None
    step: int | None = None
    interval: int | None = None
    unavailable: int | None = None
    """Percentage of capacity that may be unavailable (annotation
    `raybus.io/max-unavailable-percent`).
    """
    finds_surge: bool = False
    """Whether to plan with the largest surge that fits into the ResourceQuotas."""


class StrategyCost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cost of an upgrade with one strategy."""

    strategy: str
    is_chosen: bool
    """Whether the manifest selects this strategy."""
    traffic_seconds: int | None
    """Seconds from when the new cluster is ready until it has all traffic; None if it never has."""
    moves: int
    peak_percent: int
    """Highest total capacity of both clusters during the upgrade; 100 is one full cluster."""
    lowest_percent: int = WHOLE
    """Lowest total capacity of both clusters during the upgrade; 100 is one full cluster."""
    peak: Amounts
    at_most: Amounts
    """Largest total of resource requests during the upgrade, if no Ray node is removed meanwhile.
    """
    quotas: list[QuotaCheck] = []


class UpgradePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a manifest on a RayService, or of a changed spec on a RayCluster."""

    kind: str = RAY_SERVICE
    namespace: str
    name: str
    outcome: PlanOutcome
    notes: list[str]
    differences: list[SpecDifference] = []
    now: Amounts = {}
    ways: list[StrategyCost] = []
    surge: Surge | None = None
    """The largest surge that fits; None without `--surge`."""
    preparing_seconds: int | None = None
    """Seconds until the new cluster of the last upgrade was ready; None if it was not promoted."""
    kept_seconds: int = DEFAULT_DELETION_DELAY
    """Seconds that the old cluster is kept after the upgrade."""
    policy: PolicyPlan | None = None
    """The UpgradePolicy that the upgrade follows; None without one."""


def build(
    snapshot: Snapshot, goal: RayService, gates: Gates, sizing: Sizing, *, now: datetime
) -> UpgradePlan:
    """Plan the change from the RayService of a snapshot to the spec of `goal`.

    `sizing` replaces upgrade options of `goal`.
    """
    prediction = predict.predict(snapshot, goal, gates, now=now)
    meta, active = snapshot.service.metadata, snapshot.find_cluster(snapshot.active)
    plan = UpgradePlan(
        namespace=meta.namespace,
        name=meta.name,
        outcome=prediction.outcome,
        notes=list(prediction.notes),
        differences=differences.compare_specs(snapshot.service.raw_spec, goal.raw_spec),
        now=demand.compute_demand(active) if active is not None else {},
    )
    if active is None or prediction.outcome is not PlanOutcome.NEW_CLUSTER:
        return plan
    delay = goal.raw_spec.get("rayClusterDeletionDelaySeconds")
    surge = None
    if sizing.finds_surge:
        config = goal.raw_cluster_config
        surge = find_surge(
            active,
            demand.build_cluster(config),
            snapshot.quotas,
            sizes=demand.list_group_sizes(active, config),
            unavailable=_compute_unavailable(goal, sizing),
        )
        sizing = _set_surge(sizing, goal, surge.percent)
    return msgspec.structs.replace(
        plan,
        surge=surge,
        ways=_compare_strategies(snapshot, active, goal, gates, sizing),
        preparing_seconds=_count_prepared(snapshot.service),
        kept_seconds=delay if isinstance(delay, int) else DEFAULT_DELETION_DELAY,
    )


def plan_creation(
    goal: RayService, gates: Gates, snapshot: Snapshot, *, now: datetime
) -> UpgradePlan:
    """Plan the creation of a RayService that does not exist yet."""
    prediction = predict.predict(snapshot, goal, gates, now=now)
    meta = goal.metadata
    outcome = (
        PlanOutcome.CREATED if prediction.outcome is not PlanOutcome.REFUSED else prediction.outcome
    )
    wanted = (
        demand.compute_demand(demand.build_cluster(goal.raw_cluster_config))
        if outcome is PlanOutcome.CREATED
        else {}
    )
    way = StrategyCost(
        strategy="first cluster",
        is_chosen=True,
        traffic_seconds=0,
        moves=1,
        peak_percent=WHOLE,
        peak=wanted,
        at_most=wanted,
        quotas=demand.judge(snapshot.quotas, {}, wanted),
    )
    notes = list(prediction.notes)
    ways = [way] if wanted else []
    return UpgradePlan(
        namespace=meta.namespace, name=meta.name, outcome=outcome, notes=notes, ways=ways
    )


def _compare_strategies(
    snapshot: Snapshot, old: RayCluster, goal: RayService, gates: Gates, sizing: Sizing
) -> list[StrategyCost]:
    new, now = demand.build_cluster(goal.raw_cluster_config), demand.compute_demand(old)
    is_steps = steps.build_policy(goal, gates) is not None
    peak = demand.compute_peak_at_once(old, new)
    ways = [
        StrategyCost(
            strategy=NEW_CLUSTER,
            is_chosen=not is_steps,
            traffic_seconds=0,
            moves=1,
            peak_percent=2 * WHOLE,
            peak=peak.expected,
            at_most=peak.at_most,
            quotas=demand.judge(snapshot.quotas, now, peak.expected),
        )
    ]
    policy = _choose_policy(goal, sizing)
    if policy is None:
        return ways
    rollout = steps.simulate(policy)
    peak = demand.compute_peak_in_steps(
        old, new, rollout, demand.list_group_sizes(old, goal.raw_cluster_config)
    )
    in_steps = StrategyCost(
        strategy=serve_writer.INCREMENTAL,
        is_chosen=is_steps,
        traffic_seconds=round(rollout.length.total_seconds()) if rollout.is_finished else None,
        moves=len(rollout.weights),
        peak_percent=rollout.max_capacity,
        lowest_percent=rollout.min_capacity,
        peak=peak.expected,
        at_most=peak.at_most,
        quotas=demand.judge(snapshot.quotas, now, peak.expected),
    )
    return [*ways, in_steps]


def _choose_policy(goal: RayService, sizing: Sizing) -> Policy | None:
    """Return the options of an upgrade in steps: those of `sizing`, else those of the manifest.

    The result is None if options are missing or invalid.
    """
    tried = {
        "maxSurgePercent": sizing.surge,
        "stepSizePercent": sizing.step,
        "intervalSeconds": sizing.interval,
    }
    given = {
        **goal.raw_upgrade_options,
        **{name: value for name, value in tried.items() if value is not None},
    }
    return upgrade_controls.policy_of(given, unavailable=_compute_unavailable(goal, sizing))


def _compute_unavailable(goal: RayService, sizing: Sizing) -> int:
    return (
        upgrade_controls.read_controls(goal).unavailable
        if sizing.unavailable is None
        else sizing.unavailable
    )


def _set_surge(sizing: Sizing, goal: RayService, percent: int | None) -> Sizing:
    """Return `sizing` with the surge `percent`, and with a step that does not exceed the surge."""
    if percent is None:
        return sizing
    step = goal.raw_upgrade_options.get("stepSizePercent") if sizing.step is None else sizing.step
    return msgspec.structs.replace(
        sizing, surge=percent, step=min(step, percent) if isinstance(step, int) else None
    )


def _count_prepared(service: RayService) -> int | None:
    receipt = receipt_of(service)
    return (
        receipt.seconds.preparing
        if receipt is not None and receipt.outcome is UpgradeOutcome.PROMOTED
        else None
    )
