"""The `ray start` command of a pod: its parameters, its text, and the container command that runs it.

Behaviour: spec raycluster §11.4-11.7; acceptance cases 85-93, 101.
"""

from collections.abc import Mapping
from typing import Final

from cluster_reconciler.config import Config
from cluster_reconciler.resources import gcs_fault_tolerance, logical_resources
from common import labels, pod_json, ports
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits
from common.ray.cluster_traits import RayGroup

_TAKES_A_BOOLEAN: Final = frozenset({"log-color", "include-dashboard", "include-log-monitor"})
"""Options that Ray wants with `=true` or `=false`; every other boolean is a bare flag, or absent."""

_RAISE_OPEN_FILES: Final = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}"


def head_params(cluster: RayCluster) -> dict[str, str]:
    """Return the head's parameters, all but what its container's resources add."""
    params = _own_params(cluster.spec.head_group_spec)
    params.setdefault("dashboard-host", "0.0.0.0")  # noqa: S104 - Ray's default, localhost, is out of the Service's reach
    if traits.is_autoscaling(cluster):
        params["no-monitor"] = "true"
    return params | gcs_fault_tolerance.head_params(cluster)


def worker_params(group: RayGroup, *, gcs_address: str) -> dict[str, str]:
    """Return a worker's parameters, all but what its container's resources add."""
    params = _own_params(group)
    params.setdefault("address", gcs_address)
    return params


def _own_params(group: RayGroup) -> dict[str, str]:
    params = dict(traits.start_params(group))
    params |= logical_resources.from_top_level(group.resources or {})
    if group.labels:
        params["labels"] = ",".join(f"{key}={value}" for key, value in sorted(group.labels.items()))
    params.setdefault("metrics-export-port", str(ports.METRICS))
    params.setdefault("dashboard-agent-listen-port", str(ports.DASHBOARD_AGENT))
    params["block"] = "true"
    return params


def command(params: Mapping[str, str], container: Body, *, is_head: bool) -> str:
    """Return the text of the command: two blanks between flags and one at the end, as KubeRay writes it."""
    complete = {**params, **logical_resources.derived(params, container)}
    flags = "".join(_flag(option, value) for option, value in sorted(complete.items()))
    return f"ray start --head {flags}" if is_head else f"ray start {flags}"


def _flag(option: str, value: str) -> str:
    if value.lower() in {"true", "false"} and option not in _TAKES_A_BOOLEAN:
        return f" --{option} " if value.lower() == "true" else ""
    return f" --{option}={value} "


def shell(config: Config) -> list[str]:
    """Return the command of every container that we give a script."""
    return ["/bin/bash", "-cl" if config.uses_login_shell else "-c", "--"]


def is_users_own(template: Body) -> bool:
    """Return whether the user runs `ray start` in a pod or a template, and we do not."""
    annotations = pod_json.mapping(pod_json.body(template, "metadata"), "annotations")
    return annotations.get(labels.OVERWRITE_CONTAINER_CMD, "").lower() == "true" or "ray start" in _own(template)


def _own(template: Body) -> str:
    container = pod_json.ray_container(template)
    arguments = [*pod_json.strings(container, "command"), *pod_json.strings(container, "args")]
    return "".join(f" {argument} " for argument in arguments)


def set_container_command(pod: Body, ray_start: str, config: Config, *, exports: str = "") -> None:
    """Make the Ray container run `ray start` after the user's own command, unless the user runs it."""
    if is_users_own(pod):
        return
    container, own = pod_json.ray_container(pod), _own(pod)
    generated = f"{exports}{_RAISE_OPEN_FILES}; {ray_start}"
    container["command"] = shell(config)
    container["args"] = [f"{own} && {generated}" if own else generated]
