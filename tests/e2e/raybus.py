"""raybus's own pods on the rig: their health, and the processes in them."""

import msgspec

from common.api.core import Pod
from common.kube.resources import POD
from localcluster.demo.cluster_state import PodList

from .conftest import Rig

NAMESPACE = "raybus"
COMMANDS = {
    "watcher": "-m watcher",
    "cluster-reconciler": "-m cluster_reconciler",
    "service-reconciler": "-m service_reconciler",
    "traffic-manager": "-m traffic_manager",
    "job-reconciler": "-m job_reconciler",
    "nats": "nats-server",
}
"""Text in the command line of each part's process."""
SERVICES = tuple(name for name in COMMANDS if name != "nats")


async def pods(rig: Rig) -> list[Pod]:
    """Return the pods that are to run permanently."""
    found = msgspec.json.decode(await rig.kube.list(POD, NAMESPACE), type=PodList).items
    return [
        pod for pod in found if pod.metadata.labels.get("app.kubernetes.io/name") != "nats-streams"
    ]


async def pod_of(rig: Rig, part: str) -> Pod:
    """Return the pod of one part."""
    return next(
        pod for pod in await pods(rig) if pod.metadata.labels["app.kubernetes.io/name"] == part
    )


async def is_well(rig: Rig) -> bool:
    """Return whether every part runs and is ready."""
    return all(pod.is_running_and_ready for pod in await pods(rig))
