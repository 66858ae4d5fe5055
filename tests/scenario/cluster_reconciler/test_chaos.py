"""Random interleavings of what users, nodes, the bus, the API server and other owners do to one RayCluster.

Whatever happens, the laws hold at every write, and once it stops, the cluster comes to what its spec asks for, and nothing
more is written. HYPOTHESIS_PROFILE=long searches for minutes; without it the same steps are taken each time.
"""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster_reconciler.config import Config
from common import labels
from common.api.opaque import Body
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import JOB, POD, SERVICE, Resource
from common.ray import batch_schedulers
from scenario.cluster_reconciler.chaos import MESH, Chaos, Fault
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.laws.clusters import MANAGER

HOSTS: Final = {"g": 1, "h": 2, "i": 0, "j": None}
"""Groups and their `numOfHosts`; 0, and the absence that an old CRD makes of it, mean one."""
REDIS: Final = {"redisAddress": "redis:6379", "externalStorageNamespace": "mine"}
GANGS: Final = {
    "volcano": Config(batch_scheduler="volcano"),
    "scheduler-plugins": Config(batch_scheduler="scheduler-plugins"),
    "Kubernetes": Config(gates=BETA | {FeatureGate.KUBERNETES_WAS}),
}
"""Batch schedulers that have an object for a gang."""
FLAWS: Final[dict[str, Body]] = {
    "unreadable": {"workerGroupSpecs": 7},
    "a rule is broken": {"workerGroupSpecs": [a_group("g", min_replicas=5, max_replicas=1)]},
    "upgrade strategy": {"upgradeStrategy": {"type": "Sideways"}},
    "managed elsewhere": {"managedBy": MANAGER},
}
"""Specs for which nothing is created."""
USERS_LABELS: Final = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/created-by",
    "ray.io/identifier",
)
"""Labels by which a head Service selects, and that a template may have with other values."""
STRANGERS: Final[tuple[tuple[Resource, Body], ...]] = tuple(
    (
        resource,
        {
            "apiVersion": "v1",
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "namespace": "ns",
                "labels": {
                    labels.CLUSTER: "other",
                    labels.NODE_TYPE: labels.WORKER,
                    labels.GROUP: "g",
                },
            },
            "spec": {"containers": [], "selector": {}},
        },
    )
    for resource, name in (
        (POD, "other-worker"),
        (SERVICE, "other-head-svc"),
        (JOB, "other-redis-cleanup"),
        (batch_schedulers.VOLCANO_POD_GROUP, "ray-other-pg"),
    )
)
"""Objects of another cluster in the namespace."""
IN_TIME: Final = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
QUICK: Final = settings(IN_TIME, max_examples=12, stateful_step_count=30, derandomize=True)
USUAL: Final = settings(QUICK, max_examples=80)
LONG: Final = settings(IN_TIME, max_examples=3000, stateful_step_count=60)

FAULTS: Final = st.dictionaries(st.integers(0, 12), st.sampled_from(Fault), max_size=3)
PICK: Final = st.integers(0, 1 << 16)


class OneCluster(RuleBasedStateMachine):
    """A RayCluster with two owners, of which mostly one is at work."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._chaos = Chaos()
        self._groups: dict[str, Body] = {}
        self._fields: dict[str, Any] = {}
        self._labels: dict[str, str] = {}
        self._head_labels: dict[str, str] = {}
        self._flaw: Body = {}
        """The part of the spec that prevents all objects, until it is corrected."""
        self._restart_policy = "Always"

    def teardown(self) -> None:
        try:
            if self._groups:
                self._run(self._chaos.come_to_rest())
        finally:
            self._loop.close()

    def _run(self, what: Coroutine[Any, Any, None]) -> None:
        self._loop.run_until_complete(what)

    def _apply(self) -> None:
        if self._chaos.cluster is None and self._chaos.laws.is_deleted:
            self.peace()  # one that comes again under its name comes when the old one is forgotten
        image, restart = f"ray:{self._fields.get('ray_version', '')}", self._restart_policy
        head = a_template(
            a_container("ray-head", image=image), labels=self._head_labels, restart_policy=restart
        )
        worker = a_template(a_container("ray-worker", image=image), restart_policy=restart)
        groups = [each | {"template": worker} for each in self._groups.values()]
        cluster = a_ray_cluster(head=a_head(template=head), groups=groups, **self._fields)
        self._chaos.apply(cluster.raw_spec | self._flaw, self._labels)

    def _pod(self, pick: int) -> Body:
        pods = self._chaos.pods()
        return pods[pick % len(pods)]

    def _pod_name(self, pick: int) -> str:
        return self._pod(pick)["metadata"]["name"]

    # --- users and the autoscaler --------------------------------------------------------------------------------------

    @initialize(
        autoscaler=st.booleans(),
        recreates=st.booleans(),
        replicas=st.integers(0, 3),
        has_redis=st.booleans(),
        scheduler=st.sampled_from(["", "", *GANGS]),
        has_mesh=st.booleans(),
        restart=st.sampled_from(["Always", "Never"]),
    )
    def create(
        self,
        *,
        autoscaler: bool,
        recreates: bool,
        replicas: int,
        has_redis: bool,
        scheduler: str,
        has_mesh: bool,
        restart: str,
    ) -> None:
        self._chaos = Chaos(GANGS.get(scheduler, Config()), has_mesh=has_mesh)
        self._labels = {batch_schedulers.GANG: "true"} if scheduler else {}
        self._restart_policy = restart
        self._fields["enable_in_tree_autoscaling"] = autoscaler
        if recreates:
            self._fields["upgrade_strategy"] = {"type": "Recreate"}
        if has_redis:
            self._fields["gcs_fault_tolerance_options"] = REDIS
        for resource, body in STRANGERS:
            self._chaos.add_stranger(resource, body)
        self._groups["g"] = a_group("g", replicas=replicas)
        self._apply()

    @rule(
        name=st.sampled_from(sorted(HOSTS)),
        low=st.integers(0, 2),
        replicas=st.integers(0, 4),
        high=st.integers(2, 4),
    )
    def scale(self, name: str, low: int, replicas: int, high: int) -> None:
        """Add a group, or change its numbers."""
        fields: dict[str, Any] = {"min_replicas": low, "max_replicas": high, "replicas": replicas}
        self._groups[name] = a_group(name, num_of_hosts=HOSTS[name], **fields)
        self._apply()

    @precondition(lambda self: len(self._groups) > 1)
    @rule(pick=PICK)
    def drop_group(self, pick: int) -> None:
        del self._groups[sorted(self._groups)[pick % len(self._groups)]]
        self._apply()

    @rule(suspend=st.sampled_from([True, False, None]))
    def suspend(self, suspend: bool | None) -> None:
        self._fields.pop("suspend", None)
        if suspend is not None:
            self._fields["suspend"] = suspend
        self._apply()

    @rule(is_on=st.booleans())
    def switch_autoscaler(self, *, is_on: bool) -> None:
        self._fields["enable_in_tree_autoscaling"] = is_on
        self._apply()

    @rule(version=st.sampled_from(["2.52.0", "2.53.0"]))
    def change_version(self, version: str) -> None:
        self._fields["ray_version"] = version
        self._apply()

    @precondition(lambda self: self._chaos.pods())
    @rule(pick=PICK, shrinks=st.booleans())
    def name_a_worker(self, pick: int, *, shrinks: bool) -> None:
        """Do what the autoscaler does: name a worker, and lower replicas with it, or not."""
        pod = self._pod(pick)
        group = self._groups.get(pod["metadata"]["labels"][labels.GROUP])
        if group is not None:
            group["scaleStrategy"] = {"workersToDelete": [pod["metadata"]["name"]]}
            group["replicas"] = max(0, group["replicas"] - shrinks)
            self._apply()

    @rule(how=st.sampled_from(sorted(FLAWS)))
    def break_spec(self, how: str) -> None:
        self._flaw = FLAWS[how]
        self._apply()

    @rule()
    def mend_spec(self) -> None:
        self._flaw = {}
        self._apply()

    @rule(has_redis=st.booleans())
    def change_redis(self, *, has_redis: bool) -> None:
        self._fields.pop("gcs_fault_tolerance_options", None)
        if has_redis:
            self._fields["gcs_fault_tolerance_options"] = REDIS
        self._apply()

    @rule(label=st.sampled_from(USERS_LABELS), value=st.sampled_from(["my-model", ""]))
    def label_the_head(self, label: str, value: str) -> None:
        """Set a label of the head's template by which its Service selects, or leave it to us."""
        self._head_labels.pop(label, None)
        if value:
            self._head_labels[label] = value
        self._apply()

    @precondition(lambda self: self._chaos.cluster is not None)
    @rule(job_ends=st.sampled_from(["Complete", "Failed", ""]))
    def delete(self, job_ends: str) -> None:
        """Delete the cluster, of which a clean-up Job ends so, or never."""
        self._chaos.job_ends = job_ends
        self._run(self._chaos.delete())

    @rule(cleans_up=st.booleans())
    def operator_is_configured(self, *, cleans_up: bool) -> None:
        config = msgspec.structs.replace(self._chaos.config, cleans_up_redis=cleans_up)
        self._chaos.configure(config)

    @rule()
    def clear_names(self) -> None:
        for group in self._groups.values():
            group.pop("scaleStrategy", None)
        self._apply()

    # --- nodes ---------------------------------------------------------------------------------------------------------

    @rule()
    def kubelet_works(self) -> None:
        self._chaos.kubelet()

    @precondition(lambda self: self._chaos.pods())
    @rule(
        pick=PICK, phase=st.sampled_from(["Failed", "Succeeded", "Pending", "Running", "Unknown"])
    )
    def pod_changes(self, pick: int, phase: str) -> None:
        unready: Body = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
        self._chaos.set_pod(
            self._pod(pick)["metadata"]["name"], {"phase": phase, "conditions": [unready]}
        )

    @precondition(lambda self: self._chaos.pods())
    @rule(pick=PICK, container=st.sampled_from(["", MESH]))
    def container_ends(self, pick: int, container: str) -> None:
        """Let Ray end in a pod, or what a mesh has put before it."""
        self._chaos.end_ray(self._pod_name(pick), container=container)

    @precondition(lambda self: self._chaos.pods())
    @rule(pick=PICK, is_deleted=st.booleans())
    def node_is_lost(self, pick: int, *, is_deleted: bool) -> None:
        """Lose the node of a pod, which somebody else deletes, or what we do later."""
        name = self._pod_name(pick)
        self._chaos.lost.add(name)
        if is_deleted:
            self._run(self._chaos.evict(name, at_once=False))

    @rule(at_once=st.booleans())
    def somebody_deletes_the_head(self, *, at_once: bool) -> None:
        for pod in self._chaos.pods():
            if pod["metadata"]["labels"][labels.NODE_TYPE] == labels.HEAD:
                self._run(self._chaos.evict(pod["metadata"]["name"], at_once=at_once))

    @precondition(lambda self: self._chaos.pods())
    @rule(pick=PICK, at_once=st.booleans())
    def somebody_deletes_a_pod(self, pick: int, *, at_once: bool) -> None:
        self._run(self._chaos.evict(self._pod_name(pick), at_once=at_once))

    # --- owners and their messages -------------------------------------------------------------------------------------

    @rule(owner=st.integers(0, 1), picks=st.lists(PICK, max_size=6), repeats=st.booleans())
    def messages_arrive(self, owner: int, picks: list[int], *, repeats: bool) -> None:
        for pick in picks:
            self._chaos.owners[owner].deliver(pick, repeat=repeats)

    @rule(owner=st.integers(0, 1))
    def all_messages_arrive(self, owner: int) -> None:
        self._chaos.owners[owner].deliver_all()

    @rule(faults=FAULTS)
    def owner_reconciles(self, faults: dict[int, Fault]) -> None:
        self._run(self._chaos.owners[0].reconcile(faults))

    @rule()
    def owner_reconciles_well(self) -> None:
        self._run(self._chaos.owners[0].reconcile())

    @rule(seed=PICK)
    def both_owners_reconcile(self, seed: int) -> None:
        self._run(self._chaos.race(seed))

    @rule(is_late=st.booleans())
    def ownership_moves(self, *, is_late: bool) -> None:
        """The other owner takes over, with what the stream holds, or, when it is late, with what it has received."""
        self._chaos.owners.reverse()
        if is_late:
            self._chaos.laws.two_at_once = True
        else:
            self._chaos.owners[0].restart()

    @rule()
    def peace(self) -> None:
        self._run(self._chaos.come_to_rest())

    @invariant()
    def never_too_many(self) -> None:
        self._chaos.laws.judge_numbers(self._chaos.kube.objects)


_USUAL_OR_LONG = LONG if os.environ.get("HYPOTHESIS_PROFILE") == "long" else USUAL
TestOneClusterBriefly = type("TestOneClusterBriefly", (OneCluster.TestCase,), {"settings": QUICK})
TestOneCluster = pytest.mark.long(
    type("TestOneCluster", (OneCluster.TestCase,), {"settings": _USUAL_OR_LONG})
)
