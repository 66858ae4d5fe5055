"""Hash a cluster spec as KubeRay does, byte for byte, so that raybus can take over its clusters.

Fields that the autoscaler and Kueue change at run time are removed first. cluster-reconciler uses
the hash for the upgrade strategy Recreate. service-reconciler uses it to decide whether a change
needs a new cluster; for this hash, `suspend` is removed, too. The functions do not modify their
arguments. Behaviour: spec raycluster §9.3; spec rayservice §6.1, §6.2.
"""

import base64
import hashlib
from typing import Any, Final, cast

from common.api import go_json, go_types
from common.api.opaque import Json

_OF_GROUPS: Final = ("template.spec.tolerations", "template.spec.schedulingGates")
_OF_WORKERS: Final = (
    *_OF_GROUPS,
    "replicas",
    "minReplicas",
    "maxReplicas",
    "scaleStrategy.workersToDelete",
)
_CLEARED: Final = (
    "upgradeStrategy",
    *(f"headGroupSpec.{field}" for field in _OF_GROUPS),
    *(f"workerGroupSpecs.*.{field}" for field in _OF_WORKERS),
)


def cluster_spec_hash(spec: Json) -> str:
    """Hash the spec of a RayCluster."""
    digest = hashlib.sha1(canonical_json(spec).encode(), usedforsecurity=False).digest()
    return base64.b32hexencode(digest).decode()


def service_goal_hash(config: Json, *, worker_groups: int | None = None) -> str:
    """Hash a RayService's `rayClusterConfig`.

    If `worker_groups` is set, only that many of the first worker groups are hashed.
    """
    goal = _goal(config)
    if worker_groups is not None and isinstance(groups := goal.get("workerGroupSpecs"), list):
        goal["workerGroupSpecs"] = cast("list[Any]", groups)[:worker_groups]
    return cluster_spec_hash(goal)


def goal_json(config: Json) -> str:
    """Return the text that `service_goal_hash` hashes."""
    return canonical_json(_goal(config))


def _goal(config: Json) -> Json:
    """Return a `rayClusterConfig` without `suspend`, which Kueue changes at run time."""
    return {name: value for name, value in config.items() if name != "suspend"}


def canonical_json(spec: Json) -> str:
    """Return the text that `cluster_spec_hash` hashes."""
    for path in _CLEARED:
        spec = _without(spec, path)
    return go_json.encode(go_types.CLUSTER_SPEC, spec)


def _without(data: Any, path: str) -> Any:
    """Copy JSON data without the field at `path`, in which `*` stands for all items of a list.

    Data without such a field is returned unchanged.
    """
    name, _, rest = path.partition(".")
    if name == "*" and isinstance(data, list):
        return [_without(item, rest) for item in cast("list[Any]", data)]
    if not isinstance(data, dict) or name not in data:
        return cast("Any", data)
    known = dict(cast("Json", data))
    value = known.pop(name)
    return {**known, name: _without(value, rest)} if rest else known
