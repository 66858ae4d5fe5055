"""The input of a comparison: settings, objects of the API server, and changes in rounds."""

from typing import Any, Final

import msgspec

from cluster_reconciler.config import Config
from common import labels
from common.api.opaque import Body, Json
from common.feature_gates import BETA, FeatureGate

NAMESPACE: Final = "ns"
CLUSTER_UID: Final = "0c0ffee0-0000-4000-8000-000000000000"


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The configuration of an operator, in a form that suits raybus and KubeRay."""

    gates: dict[str, bool] = msgspec.field(
        default_factory=lambda: {gate.value: gate in BETA for gate in FeatureGate}
    )
    environment: dict[str, str] = {}
    scheduler: str = ""
    is_openshift: bool = msgspec.field(default=False, name="isOpenShift")
    head_sidecars: list[Body] = []
    worker_sidecars: list[Body] = []
    container_envs: list[Body] = []
    pod_annotations: dict[str, str] = {}
    pod_labels: dict[str, str] = {}

    def config(self, version: str) -> Config:
        """Return the settings as cluster-reconciler's configuration.

        `version` is the operator's version.
        """
        gates = frozenset(gate for gate in FeatureGate if self.gates.get(gate))
        return msgspec.structs.replace(
            Config.from_environment(self.environment, gates),
            version=version,
            is_openshift=self.is_openshift,
            batch_scheduler=self.scheduler,
            head_sidecars=tuple(self.head_sidecars),
            worker_sidecars=tuple(self.worker_sidecars),
            default_container_envs=tuple(self.container_envs),
            default_pod_annotations=self.pod_annotations,
            default_pod_labels=self.pod_labels,
        )


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one comparison.

    Both operators reconcile `objects` until nothing changes. Then the steps of each round change
    the objects, and both operators reconcile again.
    """

    settings: OperatorSettings = OperatorSettings()
    objects: list[Body] = []
    rounds: list[list[Json]] = []
    one_host: int | None = 1
    """Value that replaces `numOfHosts: 1` in the objects for raybus.

    For raybus, 0 and None (an absent field) mean the same as 1.
    """
    service: Body | None = None
    """A RayService. If set, only what the operators derive from it alone is compared."""
    job: Body | None = None
    """A RayJob about to start.

    If set, only what the operators derive from the job is compared. `objects` has the RayCluster
    that the job selects, if it selects one.
    """

    cron_job: Body | None = None
    """A RayCronJob whose last run was long ago. If set, only its next runs are compared."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the pods in `objects`. These pods are compared by name."""
        return frozenset(body["metadata"]["name"] for body in self.objects if body["kind"] == "Pod")

    @property
    def features(self) -> frozenset[str]:
        """Names of the enabled feature gates."""
        return frozenset(name for name, is_on in self.settings.gates.items() if is_on)


class RoundOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an operator's round: remaining objects, Events and writes.

    `hashes` are spec hashes, `built` is what the operator derives from a RayService or job.
    """

    objects: list[Body] = []
    events: list[Json] = []
    writes: list[str] = []
    hashes: list[str] = []
    built: Json | None = None
    panic: str = ""

    @property
    def pods(self) -> frozenset[str]:
        """Names of the pods in `objects`."""
        return frozenset(body["metadata"]["name"] for body in self.objects if body["kind"] == "Pod")


def a_cluster(spec: Json, *, name: str = "c", **metadata: Any) -> Body:
    """Build a RayCluster as the API server stores it. `metadata` adds or replaces fields."""
    meta = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": CLUSTER_UID,
        "generation": 1,
        "creationTimestamp": "NOW-60s",
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": meta | metadata,
        "spec": spec,
    }


def a_pod(
    cluster: str,
    name: str,
    *,
    group: str,
    node_type: str,
    more_labels: dict[str, str],
    **fields: Any,
) -> Body:
    """Build a pod of a cluster with the fields that operators' decisions depend on."""
    own = {
        labels.CLUSTER: cluster,
        labels.NODE_TYPE: node_type,
        labels.GROUP: group,
        labels.IS_RAY_NODE: "yes",
    }
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster, "uid": CLUSTER_UID}
    meta: Json = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-of-{name}",
        "creationTimestamp": "NOW-30s",
        "labels": own | more_labels,
        "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | fields.pop("metadata", {}),
        **fields,
    }
