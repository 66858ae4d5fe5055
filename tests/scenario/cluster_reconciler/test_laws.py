"""The machine of `test_chaos` can fail: an operator with a fault in it breaks a law, and so does a harness that is wrong."""

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cluster_reconciler import batch, plan, redis_cleanup, wiring
from cluster_reconciler import observed as observed_state
from cluster_reconciler.actions import ClusterPlan, Continue, make_step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import all_pods, workers
from cluster_reconciler.pods.workers import GroupDecision
from cluster_reconciler.resources.node import Namer
from cluster_reconciler.status import compute
from common import labels
from common.api.opaque import Body
from common.kube.resources import JOB, POD
from common.ray import batch_schedulers, ports
from common.ray import cluster_traits as traits
from common.runtime.actions import DeleteCollection
from common.runtime.cache import Cache
from scenario.cluster_reconciler.chaos import Chaos, Fault
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.laws.clusters import Violation
from support.tables import cases

GROUPS = (a_group("g", replicas=2), a_group("h", replicas=1, num_of_hosts=2))


def a_spec(groups: Sequence[Body] = GROUPS, **fields: Any) -> Body:
    return a_ray_cluster(groups=groups, **fields).raw_spec


def always(answer: object) -> Callable[..., object]:
    def function(*_: object, **__: object) -> object:
        return answer

    return function


async def a_chaos(**fields: Any) -> Chaos:
    chaos = Chaos()
    chaos.apply(a_spec(**fields))
    await chaos.come_to_rest()
    return chaos


def worker(chaos: Chaos, group: str = "g") -> str:
    return next(
        pod["metadata"]["name"]
        for pod in chaos.pods()
        if pod["metadata"]["labels"][labels.GROUP] == group
    )


async def test_a_cluster_left_in_peace_keeps_the_laws() -> None:
    chaos = await a_chaos()
    assert len(chaos.pods()) == 5


async def test_a_name_that_comes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "list_deleted_names", always(frozenset[str]()))
    chaos = await a_chaos()
    await chaos.evict(worker(chaos), at_once=True)
    with pytest.raises(BaseExceptionGroup) as caught:
        await chaos.come_to_rest()
    assert "comes back" in str(caught.value.exceptions[0])


async def test_a_deletion_that_nobody_asked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = workers.decide

    def shrinking(observed: Observed, *args: Any, **more: Any) -> GroupDecision:
        config = msgspec.structs.replace(observed.config, deletes_random_pods=True)
        return decide(msgspec.structs.replace(observed, config=config), *args, **more)

    monkeypatch.setattr(workers, "decide", shrinking)
    chaos = await a_chaos(enable_in_tree_autoscaling=True)
    chaos.apply(a_spec(enable_in_tree_autoscaling=True, groups=[a_group("g", replicas=0)]))
    with pytest.raises(BaseExceptionGroup) as caught:
        await chaos.come_to_rest()
    assert "nobody named" in str(caught.value.exceptions[0])


async def test_an_end_of_all_pods_that_nobody_asked_for_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chaos = await a_chaos()
    end = ClusterPlan(
        actions=make_step(DeleteCollection(resource=POD, selector={labels.CLUSTER: "c"})),
        note="mutated",
    )
    phases = tuple(always(end) if each is all_pods.suspend else each for each in plan.PHASES)
    monkeypatch.setattr(plan, "PHASES", phases)
    chaos.owners[0].restart()
    with pytest.raises(BaseExceptionGroup) as caught:
        await chaos.owners[0].reconcile()
    assert "nobody asked for it" in str(caught.value.exceptions[0])


async def test_a_cluster_that_stays_without_a_head_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        plan, "PHASES", (*plan.PHASES[:-2], always(Continue(note="mutated")), plan.PHASES[-1])
    )
    with pytest.raises(Violation, match="0 heads"):
        await a_chaos()


async def test_a_write_without_need_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos = await a_chaos()
    monkeypatch.setattr(compute, "has_changed", always(True))
    with pytest.raises(Violation, match="written without need"):
        await chaos.come_to_rest()


async def test_work_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos = await a_chaos()
    monkeypatch.setattr(wiring, "make_plan", always(ClusterPlan(problem="mutated")))
    chaos.owners[0].restart()
    with pytest.raises(AssertionError, match="no rest after"):
        await chaos.come_to_rest()


async def test_a_worker_that_does_not_end_and_is_not_replaced_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chaos = await a_chaos()
    monkeypatch.setattr(observed_state, "is_overdue", always(False))
    name = worker(chaos)
    chaos.lost.add(name)
    await chaos.evict(name, at_once=False)
    with pytest.raises(Violation, match="no Event names them"):
        await chaos.come_to_rest()


async def test_a_finalizer_that_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos = await a_chaos(gcs_fault_tolerance_options={"redisAddress": "redis:6379"})
    chaos.job_ends = ""
    monkeypatch.setattr(redis_cleanup, "get_timeout", always(timedelta(minutes=15)))
    await chaos.delete()
    with pytest.raises(Violation, match="the finalizer held the cluster for 0:15:00"):
        await chaos.come_to_rest()


async def test_a_selector_of_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "USERS_LABELS", ())
    own = a_template(a_container("ray-head"), labels={"app.kubernetes.io/name": "my-model"})
    with pytest.raises(Violation, match="selects nothing"):
        await a_chaos(head=a_head(template=own))


async def test_a_suspension_that_waits_for_a_valid_spec_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chaos = await a_chaos()
    phases = tuple(each for each in plan.PHASES if each is not all_pods.suspend)
    monkeypatch.setattr(plan, "PHASES", phases)
    chaos.apply(a_spec(suspend=True) | {"upgradeStrategy": {"type": "Sideways"}})
    with pytest.raises(Violation, match="to be suspended and is not"):
        await chaos.come_to_rest()


async def test_a_gang_that_keeps_its_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "withdraw", always(None))
    chaos = Chaos(Config(batch_scheduler="volcano"))
    for suspend in (False, True):
        chaos.apply(a_spec(suspend=suspend), {batch_schedulers.GANG: "true"})
        if not suspend:
            await chaos.come_to_rest()
    with pytest.raises(Violation, match="keeps its"):
        await chaos.come_to_rest()


async def test_a_pod_of_an_old_spec_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos = await a_chaos(upgrade_strategy={"type": "Recreate"})
    phases = tuple(each for each in plan.PHASES if each is not all_pods.recreate)
    monkeypatch.setattr(plan, "PHASES", phases)
    changed = a_template(a_container("ray-worker", image="ray:new"))
    groups = [a_group("g", replicas=2, template=changed)]
    chaos.apply(a_spec(groups, upgrade_strategy={"type": "Recreate"}))
    with pytest.raises(Violation, match="image of an old spec"):
        await chaos.come_to_rest()


async def test_an_object_of_others_that_is_touched_is_found() -> None:
    chaos = await a_chaos()
    meta: Body = {"name": "other", "namespace": "ns", "labels": {labels.CLUSTER: "other"}}
    chaos.add_stranger(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    await chaos.kube.delete(POD, "ns", "other")
    with pytest.raises(Violation, match="of another owner was touched"):
        await chaos.come_to_rest()


async def test_ray_that_ends_behind_a_mesh_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traits, "ray_container_name", always(""))
    chaos = Chaos(has_mesh=True)
    never = a_template(a_container("ray-worker"), restart_policy="Never")
    chaos.apply(a_spec([a_group("g", replicas=2, template=never)]))
    await chaos.come_to_rest()
    chaos.end_ray(worker(chaos))
    with pytest.raises(Violation, match="cannot recover and stay"):
        await chaos.come_to_rest()


async def test_names_that_two_owners_draw_apart_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Namer.draw

    def draw(
        self: Namer, prefix: str, group: str, place: str = "", *, hosts: int = 1
    ) -> tuple[list[str], str]:
        return drawn(self, prefix, group, f"{place}{id(self)}", hosts=hosts)

    monkeypatch.setattr(Namer, "draw", draw)
    chaos = Chaos()
    chaos.apply(a_spec())
    for owner in chaos.owners:
        owner.deliver_all()
    await chaos.race(0)
    with pytest.raises(Violation, match="where at most"):
        chaos.laws.judge_numbers(chaos.kube.objects)


async def test_two_owners_at_once_make_each_pod_once() -> None:
    chaos = Chaos()
    chaos.apply(a_spec())
    for owner in chaos.owners:
        owner.deliver_all()
    await chaos.race(0)
    chaos.laws.judge_numbers(chaos.kube.objects)
    await chaos.come_to_rest()


async def test_pods_that_a_late_owner_makes_of_a_suspended_cluster_go() -> None:
    chaos = Chaos(owners=1)
    chaos.apply(a_spec())
    late = chaos.an_owner()
    await chaos.come_to_rest()
    chaos.apply(a_spec(suspend=True))
    await chaos.come_to_rest()
    chaos.laws.two_at_once = True
    await late.reconcile()
    assert chaos.pods()
    await chaos.come_to_rest()
    assert not chaos.pods()


@pytest.mark.parametrize("group", ["headgroup", "g"])
async def test_a_pod_that_has_failed_and_is_gone_once_deleted_is_replaced(group: str) -> None:
    chaos = await a_chaos()
    failed = worker(chaos, group)
    chaos.set_pod(failed, {"phase": "Failed"})
    await chaos.come_to_rest()
    assert failed not in {pod["metadata"]["name"] for pod in chaos.pods()}
    assert len(chaos.pods()) == 5


async def test_pods_that_are_gone_once_deleted_together_are_recreated() -> None:
    fields: Body = {"upgrade_strategy": {"type": "Recreate"}}
    chaos = await a_chaos(**fields)
    chaos.kube.graceful_pods = False
    chaos.apply(a_spec(**fields, ray_version="2.53.0"))
    await chaos.come_to_rest()
    assert len(chaos.pods()) == 5


async def test_a_clean_up_job_that_has_ended_before_it_was_known_ends_the_deletion() -> None:
    chaos = await a_chaos(gcs_fault_tolerance_options={"redisAddress": "redis:6379"})
    owner = chaos.owners[0]
    await chaos.delete()
    while chaos.pods():
        owner.deliver_all()
        await owner.reconcile()
        chaos.kubelet()
    owner.deliver_all()
    await owner.reconcile({0: Fault.LOST})
    assert chaos.kube.all(JOB, "ns")
    chaos.kubelet()
    await owner.reconcile()
    owner.deliver_all()
    assert owner.is_due
    await owner.reconcile()
    assert chaos.cluster is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"suspend": True}, id="suspension"),
        pytest.param({"ray_version": "2.53.0"}, id="recreation"),
    ],
)
async def test_a_head_of_a_lost_node_that_is_deleted_with_all_pods_is_reported(
    change: Body,
) -> None:
    fields: Body = {"groups": [], "upgrade_strategy": {"type": "Recreate"}}
    chaos = await a_chaos(**fields)
    (head,) = (pod["metadata"]["name"] for pod in chaos.pods())
    chaos.lost.add(head)
    chaos.apply(a_spec(**fields, **change))
    await chaos.come_to_rest()
    assert "PodsNotEnding" in chaos.laws.reasons


@cases(
    ("change", "text"),
    {
        "an index twice": ({labels.REPLICA_INDEX: "1"}, "more than once"),
        "place": (
            {labels.GROUP: "h", labels.REPLICA_NAME: "h-x", labels.HOST_INDEX: "7"},
            "pods of group",
        ),
    },
)
async def test_a_harness_that_is_wrong_is_found(change: dict[str, str], text: str) -> None:
    chaos = await a_chaos()
    objects = copy.deepcopy(chaos.kube.objects)
    objects["Pod", "ns", worker(chaos)]["metadata"]["labels"] |= change
    with pytest.raises(Violation, match=text):
        chaos.laws.at_rest(objects)
