"""The rest of `raybus plan`: fields and their effects, steps and their time, demand and quotas, and how it renders."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from common import labels
from common.api import ray_service
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.upgrade.controls import Policy
from raybus_cli.planning import demand, differences, picture, plan, predict, steps
from raybus_cli.planning.differences import Effect
from raybus_cli.planning.plan import Sizing, UpgradePlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading.snapshot import Snapshot
from support.builders import snapshots
from support.builders.snapshots import NOW, STEPS, a_config, a_gpu_group, at_rest
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of

QUOTA: Json = {
    "metadata": {"name": "gpus", "namespace": "default"},
    "status": {
        "hard": {"requests.nvidia.com/gpu": "6", "pods": "20"},
        "used": {"requests.nvidia.com/gpu": "4", "pods": "5"},
    },
}

FULL: Json = {
    "maxSurgePercent": 0,
    "stepSizePercent": 0,
    "intervalSeconds": 30,
    "gatewayClassName": "eg",
}


def _goal(snapshot: Snapshot, **spec: Any) -> RayService:
    body = snapshots.a_service(**spec)
    return snapshots.with_spec(snapshot.service, ray_service.decode(body).spec_json, generation=3)


def _plan(snapshot: Snapshot, sizing: Sizing = Sizing(), **spec: Any) -> UpgradePlan:  # noqa: B008  (frozen)
    return plan.build(snapshot, _goal(snapshot, **spec), BETA, sizing, now=NOW)


def _groups(spec: Json) -> list[Json]:
    return spec["rayClusterConfig"]["workerGroupSpecs"]


def _rescale(spec: Json) -> None:
    _groups(spec)[0]["replicas"] = 6


def _renew(spec: Json) -> None:
    spec["rayClusterConfig"]["rayVersion"] = "2.53.0"


def _append(spec: Json) -> None:
    _groups(spec).append(a_gpu_group("more"))


def _drop(spec: Json) -> None:
    _groups(spec).clear()


def _serve(spec: Json) -> None:
    spec["serveConfigV2"] = "x"


def _strategy(spec: Json) -> None:
    spec["upgradeStrategy"] = {"type": "None"}


GROUPS = "spec.rayClusterConfig.workerGroupSpecs"


@cases(
    ("change", "field", "effect"),
    {
        "replicas": (_rescale, f"{GROUPS}.gpu.replicas", Effect.NOTHING),
        "the version of Ray": (_renew, "spec.rayClusterConfig.rayVersion", Effect.NEW_CLUSTER),
        "a worker group at the end": (_append, f"{GROUPS}.more", Effect.IN_PLACE),
        "a worker group less": (_drop, f"{GROUPS}.gpu", Effect.NEW_CLUSTER),
        "Serve": (_serve, "spec.serveConfigV2", Effect.IN_PLACE),
        "the strategy": (_strategy, "spec.upgradeStrategy", Effect.NOTHING),
    },
)
def test_each_field_has_a_description(
    change: Callable[[Json], None], field: str, effect: Effect
) -> None:
    old = at_rest().service.raw_spec
    new = copy.deepcopy(old)
    change(new)
    found = differences.compare_specs(old, new)
    assert [(each.field, each.effect) for each in found] == [(field, effect)]


@cases(
    ("surge", "step", "interval", "weights", "seconds", "most"),
    {
        "a full surge": (100, 25, 60, (25, 50, 75, 100), 240, 200),
        "a surge of two steps": (20, 10, 30, tuple(range(10, 101, 10)), 300, 120),
        "no divisor": (
            30,
            7,
            10,
            (7, 14, 21, 28, 30, 37, 44, 51, 58, 60, 67, 74, 81, 88, 90, 97, 100),
            170,
            130,
        ),
        "one step": (100, 100, 5, (100,), 5, 200),
    },
)
def test_steps_take_as_long_as_their_intervals(
    surge: int, step: int, interval: int, weights: tuple[int, ...], seconds: int, most: int
) -> None:
    rollout = steps.simulate(Policy(surge=surge, step=step, interval=timedelta(seconds=interval)))
    assert (rollout.is_finished, rollout.weights, rollout.max_capacity) == (True, weights, most)
    assert seconds <= rollout.length.total_seconds() <= seconds * 1.1 + 2


def test_without_a_surge_an_upgrade_never_ends() -> None:
    assert not steps.simulate(Policy(surge=0, step=10, interval=timedelta(seconds=1))).is_finished


def test_a_full_cluster_is_upgraded_with_what_it_may_lack() -> None:
    options = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": FULL}
    found = _plan(
        at_rest(),
        Sizing(unavailable=20),
        config=a_config(snapshots.NEW_IMAGE),
        upgradeStrategy=options,
    )
    way = found.ways[1]
    assert (way.moves, way.traffic_seconds, way.lowest_percent, way.peak_percent) == (
        4,
        122,
        80,
        100,
    )
    assert "80 to 100 %" in text_of(picture.draw(found), width=200)


def test_the_annotation_for_a_full_cluster_counts() -> None:
    options = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": FULL}
    snapshot, config = at_rest(), a_config(snapshots.NEW_IMAGE)
    assert _plan(snapshot, config=config, upgradeStrategy=options).ways[1].traffic_seconds is None
    goal = _goal(snapshot, config=config, upgradeStrategy=options)
    meta = replace(goal.metadata, annotations={labels.MAX_UNAVAILABLE: "20"})
    found = plan.build(snapshot, replace(goal, metadata=meta), BETA, Sizing(), now=NOW)
    assert found.ways[1].traffic_seconds == 122


def test_a_cluster_asks_for_head_and_workers() -> None:
    found = demand.compute_demand(demand.build_cluster(a_config()))
    assert found == {"cpu": "18", "memory": "68Gi", "nvidia.com/gpu": "4", "pods": "5"}


@pytest.mark.parametrize(("hard", "is_enough"), [("8", True), ("7", False)])
def test_a_quota_is_held_against_what_is_used_already(hard: str, is_enough: bool) -> None:
    body = copy.deepcopy(QUOTA)
    body["status"]["hard"]["requests.nvidia.com/gpu"] = hard
    snapshot = at_rest(quotas=[body])
    verdict = demand.judge(snapshot.quotas, {"nvidia.com/gpu": "4"}, {"nvidia.com/gpu": "8"})
    assert [(each.resource, each.more, each.is_enough) for each in verdict] == [
        ("requests.nvidia.com/gpu", "4", is_enough)
    ]


def test_steps_need_less_than_a_whole_second_cluster() -> None:
    found = _plan(at_rest(), config=a_config(snapshots.NEW_IMAGE), upgradeStrategy=STEPS)
    at_once, in_steps = found.ways
    assert (at_once.peak["nvidia.com/gpu"], in_steps.peak["nvidia.com/gpu"]) == ("8", "6")
    assert (in_steps.at_most["nvidia.com/gpu"], in_steps.moves, in_steps.is_chosen) == (
        "8",
        10,
        True,
    )


def test_other_options_can_be_tried() -> None:
    found = _plan(
        at_rest(), Sizing(surge=100, step=50, interval=10), config=a_config(snapshots.NEW_IMAGE)
    )
    assert [(each.strategy, each.is_chosen, each.moves) for each in found.ways] == [
        ("NewCluster", True, 1),
        ("NewClusterWithIncrementalUpgrade", False, 2),
    ]


def _surge(*, gpus: str = "6", used: str = "4", **options: Any) -> UpgradePlan:
    """Plan a new image in steps with the largest surge, under a quota for GPUs; each of four workers has one."""
    quota = copy.deepcopy(QUOTA)
    quota["status"]["hard"]["requests.nvidia.com/gpu"] = gpus
    quota["status"]["used"]["requests.nvidia.com/gpu"] = used
    return _plan(
        at_rest(quotas=[quota]),
        Sizing(finds_surge=True, **options),
        config=a_config(snapshots.NEW_IMAGE),
        upgradeStrategy=STEPS,
    )


@pytest.mark.parametrize(
    ("gpus", "percent"),
    [
        pytest.param("8", 100, id="a second cluster fits"),
        pytest.param("7", 75, id="three workers more"),
        pytest.param("6", 50, id="two workers more"),
        pytest.param("5", 25, id="one worker more"),
    ],
)
def test_the_largest_surge_fits_and_one_percent_more_does_not(gpus: str, percent: int) -> None:
    found = _surge(gpus=gpus)
    assert found.surge is not None
    assert found.surge.percent == percent
    in_steps = found.ways[1]
    assert in_steps.peak_percent == 100 + percent
    assert all(each.is_enough for each in in_steps.quotas)
    assert [each.resource for each in found.surge.limits] == (
        [] if percent == 100 else ["requests.nvidia.com/gpu"]
    )


def test_what_others_use_of_a_quota_lowers_the_surge() -> None:
    found = _surge(gpus="8", used="7").surge
    assert found is not None
    assert found.percent == 25


def test_a_full_quota_has_room_for_no_surge_and_the_remedy_is_named() -> None:
    found = _surge(gpus="4")
    assert found.surge is not None
    assert found.surge.percent is None
    assert "--max-unavailable" in text_of(picture.draw(found), width=200)


def test_a_step_larger_than_the_surge_becomes_the_surge() -> None:
    found = _surge(gpus="5", step=100)
    assert found.ways[1].moves == 4


def test_without_a_quota_nothing_limits_the_surge() -> None:
    found = _plan(
        at_rest(),
        Sizing(finds_surge=True),
        config=a_config(snapshots.NEW_IMAGE),
        upgradeStrategy=STEPS,
    )
    assert found.surge is not None
    assert (found.surge.percent, found.surge.limits) == (100, [])
    assert "No ResourceQuota limits maxSurgePercent" in text_of(picture.draw(found), width=200)


def test_a_change_in_place_needs_no_surge() -> None:
    assert _plan(at_rest(), Sizing(finds_surge=True), serve="applications: []\n").surge is None


def test_a_refused_manifest_has_a_reason() -> None:
    found = _plan(at_rest(), upgradeStrategy={"type": "Sometimes"})
    assert found.outcome is PlanOutcome.REFUSED
    assert "UpgradeStrategy.Type value Sometimes is invalid" in found.notes[0]


def test_an_unreadable_serve_config_is_not_sent() -> None:
    assert _plan(at_rest(), serve="applications: [").outcome is PlanOutcome.NOTHING


def test_a_deleted_service_ignores_its_spec() -> None:
    body = snapshots.a_ready_service()
    body["metadata"]["deletionTimestamp"] = snapshots.ago(5)
    found = _plan(at_rest(service=body), config=a_config(snapshots.NEW_IMAGE))
    assert (found.outcome, found.notes) == (
        PlanOutcome.NOTHING,
        ["waiting for its RayClusters to be deleted"],
    )


def test_a_service_out_of_time_gets_no_new_cluster() -> None:
    initializing = snapshots.a_condition("Ready", "False", reason="Initializing", since=3600)
    limit = {labels.INITIALIZING_TIMEOUT: "10m"}
    body = snapshots.a_service(
        initializing, active=snapshots.a_side(snapshots.BLUE), annotations=limit, endpoints=0
    )
    found = _plan(at_rest(service=body), config=a_config(snapshots.NEW_IMAGE))
    assert (found.outcome, found.notes) == (PlanOutcome.NOTHING, [predict.TIMED_OUT])


def test_a_pending_cluster_that_serves_is_promoted_before_the_next_one() -> None:
    old, new = a_config(), a_config(snapshots.NEW_IMAGE)
    active, pending = snapshots.a_side(snapshots.BLUE), snapshots.a_side(snapshots.GREEN)
    snapshot = at_rest(
        service=snapshots.a_service(
            snapshots.READY, snapshots.UPGRADING, config=new, active=active, pending=pending
        ),
        clusters=[
            snapshots.a_cluster(snapshots.BLUE, old),
            snapshots.a_cluster(snapshots.GREEN, new),
        ],
        services=[
            snapshots.a_selector_service(snapshots.GREEN, name)
            for name in ("demo-serve-svc", "demo-head-svc")
        ],
    )
    assert (
        _plan(snapshot, config=a_config("rayproject/ray:2.54.0")).outcome is PlanOutcome.NEW_CLUSTER
    )
    assert _plan(snapshot, config=new).outcome is PlanOutcome.NOTHING


@cases(
    ("name", "spec"),
    {
        "a new image": (
            "new-cluster",
            {"config": a_config(snapshots.NEW_IMAGE), "upgradeStrategy": STEPS},
        ),
        "another Serve config": ("in-place", {"serve": "applications: []\n"}),
        "the same": ("nothing", {}),
    },
)
def test_it_renders_as(name: str, spec: Json, golden: Golden) -> None:
    config = spec.pop("config", a_config())
    found = _plan(at_rest(quotas=[QUOTA]), config=config, **spec)
    golden.check(f"cli/plan-{name}.txt", text_of(picture.draw(found), width=160))


def test_the_largest_surge_renders_as(golden: Golden) -> None:
    golden.check("cli/plan-surge.txt", text_of(picture.draw(_surge()), width=160))


def test_of_a_long_serve_config_the_lines_that_differ_are_shown() -> None:
    old, new = (
        f"proxy_location: EveryNode\nhttp_options:\n  port: 8000\nlimit: {each}\n"
        for each in (1, 2)
    )
    (found,) = differences.compare_specs({"serveConfigV2": old}, {"serveConfigV2": new})
    assert (found.old, found.new) == ("limit: 1", "limit: 2")
    (found,) = differences.compare_specs(
        {"serveConfigV2": old}, {"serveConfigV2": old + "more: 3\n"}
    )
    assert (found.old, found.new) == ("-", "more: 3")


def test_a_group_that_has_not_been_scaled_yet_counts_with_its_least() -> None:
    group = {**a_gpu_group(), "replicas": 0, "minReplicas": 2}
    assert (
        demand.compute_demand(demand.build_cluster(a_config(snapshots.OLD_IMAGE, group)))["pods"]
        == "3"
    )


@pytest.mark.parametrize("fields", [{"maxReplicas": 0}, {"suspend": True}])
def test_a_group_that_gets_no_pod_counts_for_nothing(fields: Json) -> None:
    found = demand.compute_demand(
        demand.build_cluster(a_config(snapshots.OLD_IMAGE, {**a_gpu_group(), **fields}))
    )
    assert (found["pods"], found.get("nvidia.com/gpu", "0")) == ("1", "0")


@pytest.mark.parametrize(
    ("outcome", "seconds"), [("Promoted", 41), ("Cancelled", None), ("Aborted", None)]
)
def test_only_an_upgrade_that_was_promoted_is_an_estimate(
    outcome: str, seconds: int | None
) -> None:
    receipt = (
        f'{{"from":"a","to":"b","outcome":"{outcome}","started":"2026-01-01T12:00:00Z","finished":"2026-01-01T12:03:00Z",'
        '"seconds":{"preparing":41,"shifting":60,"draining":60},"peakSurgePercent":20,"lowestCapacityPercent":100,'
        '"requestsCut":0}'
    )
    snapshot = at_rest(
        service=snapshots.a_ready_service(annotations={labels.UPGRADE_RECEIPT: receipt})
    )
    assert _plan(snapshot, config=a_config("ray:new")).preparing_seconds == seconds
