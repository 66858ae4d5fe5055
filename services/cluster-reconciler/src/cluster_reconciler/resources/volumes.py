"""The volumes that Ray needs: shared memory for its object store, and logs shared with the autoscaler.

Behaviour: spec raycluster §11.11; acceptance cases 97-98.
"""

from collections.abc import Mapping
from typing import Final

from common import pod_json
from common.api.opaque import Body

SHARED_MEMORY: Final = "shared-mem"
SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - where Linux keeps shared memory, in the container
LOGS: Final = "ray-logs"
LOGS_PATH: Final = "/tmp/ray"  # noqa: S108 - where Ray writes its logs, in the container


def add_shared_memory(pod: Body, params: Mapping[str, str]) -> None:
    """Give the object store memory, unless the user placed it elsewhere."""
    if "plasma-directory" in params:
        return
    container = pod_json.ray_container(pod)
    medium: Body = {"medium": "Memory"}
    if (limit := _memory(container)) is not None:
        medium["sizeLimit"] = limit
    _mount_empty_dir(pod, container, {"name": SHARED_MEMORY, "emptyDir": medium}, SHARED_MEMORY_PATH)


def share_logs(pod: Body, *, with_container: str) -> None:
    """Let another container of the pod see Ray's logs and the Ray container see its."""
    other = next(container for container in pod_json.containers(pod) if container["name"] == with_container)
    for container in (pod_json.ray_container(pod), other):
        _mount_empty_dir(pod, container, {"name": LOGS, "emptyDir": {}}, LOGS_PATH)


def _mount_empty_dir(pod: Body, container: Body, volume: Body, path: str) -> None:
    if pod_json.has_mount(container, path=path):
        return
    pod_json.add_missing_volume(pod, volume)
    pod_json.ensure_list(container, "volumeMounts").append({"name": volume["name"], "mountPath": path})


def _memory(container: Body) -> str | None:
    resources = pod_json.body(container, "resources")
    limits, requests = pod_json.mapping(resources, "limits"), pod_json.mapping(resources, "requests")
    return limits.get("memory", requests.get("memory"))
