"""The hash of a cluster spec, for "same cluster spec": equal bytes to KubeRay's, so that taking over a running cluster changes nothing.

What the autoscaler and Kueue change at run time is cleared before hashing. Two controllers use the same hash: RayCluster for its upgradeStrategy
Recreate, RayService to decide whether a change needs a new cluster; the latter also clears `suspend`.

Behaviour: spec raycluster §9.3; spec rayservice §6.1, §6.2.
"""

import base64
import hashlib
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from common.api import go_json, go_types
from common.api.opaque import Json

Spec: TypeAlias = Json
"""A RayClusterSpec as JSON data; the functions leave it as it is."""


def cluster_spec_hash(spec: Spec) -> str:
    """Hash a RayCluster's spec."""
    return _digest(canonical_json(spec))


def service_goal_hash(config: Spec, *, worker_groups: int | None = None) -> str:
    """Hash a RayService's `rayClusterConfig`, or only that much of it as has the first so many worker groups."""
    goal = _without(config, "suspend")
    if worker_groups is not None:
        goal = _with(goal, "workerGroupSpecs", lambda groups: _first(groups, worker_groups))
    return cluster_spec_hash(goal)


def canonical_json(spec: Spec) -> str:
    """Return the text that is hashed."""
    return go_json.encode(go_types.CLUSTER_SPEC, _muted(spec))


def _muted(spec: Spec) -> Spec:
    muted = _without(spec, "upgradeStrategy")
    muted = _with(muted, "headGroupSpec", _muted_template)
    return _with(muted, "workerGroupSpecs", lambda groups: _each(groups, _muted_group))


def _muted_group(group: Any) -> Any:
    muted = _without(_muted_template(group), "replicas", "minReplicas", "maxReplicas")
    return _with(muted, "scaleStrategy", lambda strategy: _without(strategy, "workersToDelete"))


def _muted_template(group: Any) -> Any:
    def mute(template: Any) -> Any:
        return _with(template, "spec", lambda spec: _without(spec, "tolerations", "schedulingGates"))

    return _with(group, "template", mute)


def _digest(text: str) -> str:
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
    return base64.b32hexencode(digest).decode()


def _without(data: Any, *names: str) -> Any:
    """Copy a JSON object without some fields."""
    if not isinstance(data, dict):
        return data
    return {key: value for key, value in cast("Json", data).items() if key not in names}


def _with(data: Any, name: str, change: Callable[[Any], Any]) -> Any:
    """Copy a JSON object with one field changed, if it is there."""
    if not isinstance(data, dict) or name not in data:
        return cast("Any", data)
    known = cast("Json", data)
    return {**known, name: change(known[name])}


def _each(items: Any, change: Callable[[Any], Any]) -> Any:
    return [change(item) for item in cast("list[Any]", items)] if isinstance(items, list) else items


def _first(items: Any, count: int) -> Any:
    return cast("list[Any]", items)[:count] if isinstance(items, list) else items
