"""Build a worker pod, with an init container that waits until the GCS answers.

Spec raycluster §11.1, §11.2, §11.8; acceptance cases 86-105.
"""

from functools import cached_property
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import drain_hook, ray_pod, ray_start
from cluster_reconciler.resources.node import (
    WAIT_GCS_READY,
    RayNode,
    ReplicaIndex,
    build_replica_labels,
)
from common import labels, names, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.pod_json import literal
from common.ray import cluster_traits as traits

_RECONNECT_SECONDS: Final = "600"
_FAQ: Final = "https://docs.ray.io/en/master/cluster/kubernetes/troubleshooting.html"


def format_name_prefix(cluster: RayCluster, group: WorkerGroupSpec) -> str:
    """Return the prefix of a worker's generated name, with the dash before the suffix."""
    return names.pod_prefix(f"{cluster.metadata.name}-{group.group_name}", labels.WORKER)


class WorkerPods(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The worker pods of a group, which differ only in their names and positions in the group.

    Their common parts are built once, for the first pod.
    """

    cluster: RayCluster
    group: WorkerGroupSpec
    config: Config

    def build(self, *, name: str, replica: ReplicaIndex) -> Body:
        """Return the pod for one position in the group (`replica`).

        The caller may change only the pod's metadata, its labels and annotations, and the fields of
        its spec. Deeper values are shared by all pods of the group.
        """
        common, metadata = self._common, self._common["metadata"]
        return {
            **common,
            "metadata": {
                **metadata,
                "name": name,
                "labels": metadata["labels"] | build_replica_labels(self._node, replica),
                "annotations": dict(metadata["annotations"]),
            },
            "spec": dict(common["spec"]),
        }

    @cached_property
    def _node(self) -> RayNode:
        return RayNode(cluster=self.cluster, config=self.config, group=self.group)

    @cached_property
    def _common(self) -> Body:
        """The parts of a pod that are the same for all pods of the group."""
        cluster, pod = self.cluster, ray_pod.copy_template(self._node)
        pod["metadata"]["generateName"] = format_name_prefix(cluster, self.group)
        if self.config.injects_init_container:
            # It copies env and mounts of the Ray container, so it is built before anything is
            # added to that container.
            pod_json.ensure_list(pod["spec"], "initContainers").append(
                _build_wait_container(pod_json.ray_container(pod), self._node)
            )
        if traits.is_fault_tolerant(cluster):  # A worker waits long enough for a new head.
            timeout = literal("RAY_gcs_rpc_server_reconnect_timeout_s", _RECONNECT_SECONDS)
            pod_json.add_missing_env(pod_json.ray_container(pod), timeout)
        if traits.is_autoscaling(cluster) and traits.autoscaler_version(cluster) == "v2":
            pod["spec"]["restartPolicy"] = "Never"
        ray_pod.complete(pod, self._node)
        drain_hook.configure(pod, cluster, is_head=False)
        return pod


def build(
    cluster: RayCluster, group: WorkerGroupSpec, config: Config, *, name: str, replica: ReplicaIndex
) -> Body:
    """Return one worker pod, for one position in its group (`replica`)."""
    pods = WorkerPods(cluster=cluster, group=group, config=config)
    return pods.build(name=name, replica=replica)


def _build_wait_container(ray_container: Body, node: RayNode) -> Body:
    """Return the init container that waits for the GCS, with the Ray container's image and env.

    The container hides errors for two minutes, because they are normal while a head starts, and
    shows them afterwards.
    """
    shared = ("image", "imagePullPolicy", "securityContext", "env", "volumeMounts")
    script = f"""\
SECONDS=0
while true; do
  if (( SECONDS <= 120 )); then
    if ray health-check --address {node.gcs_address} > /dev/null 2>&1; then
      echo "GCS is ready."
      break
    fi
    echo "$SECONDS seconds elapsed: Waiting for GCS to be ready."
  else
    if ray health-check --address {node.gcs_address}; then
      echo "GCS is ready. Any error messages above can be safely ignored."
      break
    fi
    echo "$SECONDS seconds elapsed: Still waiting for GCS to be ready. \
For troubleshooting, refer to the FAQ at {_FAQ}."
  fi
  sleep 5
done
"""
    return {
        "name": WAIT_GCS_READY,
        **pod_json.shared(ray_container, *shared),
        **ray_start.build_script_fields(node.config, script, cpu="200m", memory="256Mi"),
    }
