"""The effect of a change on a RayCluster, and the changes that are refused."""

import copy
from typing import Any

import msgspec
import pytest

from common import errors
from common.api import ray_cluster
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA
from raybus_cli.changing import cli, edits, execute
from raybus_cli.changing.edits import FieldEdit
from raybus_cli.changing.execute import Decide
from raybus_cli.planning import picture
from raybus_cli.planning import plan as plans
from raybus_cli.planning.plan import Sizing, UpgradePlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import NamedTarget
from support.builders import snapshots
from support.builders.snapshots import NOW, STEPS, a_cluster, a_config, at_rest
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of


def a_lone_cluster(*, creator: str = "", **spec: Any) -> RayCluster:
    body = a_cluster("lone", {**a_config(), **spec})
    body["metadata"]["labels"] = {
        "ray.io/originated-from-crd": creator,
        "ray.io/originated-from-cr-name": "demo",
    }
    return ray_cluster.decode(body)


RECREATED: Any = {"upgradeStrategy": {"type": "Recreate"}}


def _printed(plan: UpgradePlan, target: NamedTarget, done: str) -> str:
    return (
        f"{text_of(picture.draw(plan), width=110)}\n{cli.report(target, done, is_dry_run=True)}\n"
    )


@cases(
    ("cluster", "message"),
    {
        "no strategy": (a_lone_cluster(), "is not set, so its pods stay as they are"),
        "None": (a_lone_cluster(upgradeStrategy={"type": "None"}), "set it to Recreate, or delete"),
        "a service": (
            a_lone_cluster(creator="RayService", **RECREATED),
            "name that one, rayservice/demo",
        ),
        "a job": (a_lone_cluster(creator="RayJob", **RECREATED), "belongs to RayJob demo"),
        "Kueue": (a_lone_cluster(managedBy="kueue.x-k8s.io/multikueue", **RECREATED), "is kueue"),
    },
)
def test_a_cluster_that_is_not_recreated_is_refused(cluster: RayCluster, message: str) -> None:
    with pytest.raises(errors.Rejected, match=message):
        execute.check_is_recreated(cluster)


def test_a_cluster_of_its_own_is_recreated(golden: Golden) -> None:
    cluster = a_lone_cluster(**RECREATED)
    execute.check_is_recreated(cluster)
    plan = execute.plan_cluster(cluster, edits.restart(cluster.raw_spec, now=NOW))
    assert plan.outcome is PlanOutcome.RECREATED
    golden.check(
        "cli/restart-cluster.txt", _printed(plan, NamedTarget(kinds.CLUSTER, "lone"), cli.RESTARTED)
    )


def _restart(config: Json) -> list[FieldEdit]:
    return edits.restart(config, now=NOW)


def _set_image(config: Json) -> list[FieldEdit]:
    return edits.set_images(config, [edits.parse(f"head={snapshots.NEW_IMAGE}")])


@pytest.mark.parametrize(
    ("file", "decide", "done"),
    [
        pytest.param("restart", _restart, cli.RESTARTED, id="restart"),
        pytest.param("set-image", _set_image, cli.IMAGES_SET, id="set image"),
    ],
)
def test_a_service_gets_a_new_cluster(file: str, decide: Decide, done: str, golden: Golden) -> None:
    snapshot = at_rest(service=snapshots.a_ready_service(upgradeStrategy=STEPS))
    body = copy.deepcopy(snapshot.service.raw_spec)
    for each in decide(body["rayClusterConfig"]):
        at: Any = body["rayClusterConfig"]
        for part in each.path[:-1]:
            at = at[part]
        at[each.path[-1]] = each.value
    goal = snapshots.with_spec(
        snapshot.service, msgspec.Raw(msgspec.json.encode(body)), generation=3
    )
    plan = plans.build(snapshot, goal, BETA, Sizing(), now=NOW)
    execute.check(plan, NamedTarget(kinds.SERVICE, "demo"), must_restart=True)
    assert plan.outcome is PlanOutcome.NEW_CLUSTER
    golden.check(f"cli/{file}.txt", _printed(plan, NamedTarget(kinds.SERVICE, "demo"), done))


def test_a_suspended_cluster_gets_no_pod_now() -> None:
    cluster = a_lone_cluster(suspend=True, **RECREATED)
    plan = execute.plan_cluster(cluster, edits.restart(cluster.raw_spec, now=NOW))
    execute.check(plan, NamedTarget(kinds.CLUSTER, "lone"), must_restart=False)
    with pytest.raises(
        errors.Rejected, match=r"no new pod now \(the cluster is suspended\); nothing"
    ):
        execute.check(plan, NamedTarget(kinds.CLUSTER, "lone"), must_restart=True)


def test_a_refused_spec_is_never_written() -> None:
    plan = UpgradePlan(namespace="default", name="demo", outcome=PlanOutcome.REFUSED, notes=["bad"])
    with pytest.raises(errors.Rejected, match="would be rejected; nothing is changed"):
        execute.check(plan, NamedTarget(kinds.SERVICE, "demo"), must_restart=False)
