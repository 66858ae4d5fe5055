"""The `ray start` command of a pod: its parameters, its text, and the container's command.

A group's top-level `resources` overwrite rayStartParams. Resource counts that are set in neither
place are derived from the limits of the Ray container. Spec raycluster §11.4-11.7; acceptance cases
85-93, 101.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import gcs_fault_tolerance
from cluster_reconciler.resources.node import RayNode
from common import feature_gates, labels, pod_json, quantity
from common.api import go_json
from common.api.opaque import Body
from common.quantity import Quantity, QuantityError
from common.ray import cluster_traits as traits
from common.ray import ports
from common.ray.desired_resources import is_gpu

ACCELERATORS: Final = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}
"""Accelerators by their resource name in Kubernetes; the values are Ray's names."""
_TAKES_A_BOOLEAN: Final = frozenset({"log-color", "include-dashboard", "include-log-monitor"})
"""Options that Ray expects with `=true` or `=false`; other booleans are flags without a value."""
_RAISE_OPEN_FILES: Final = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}"
_QUOTES: Final = "'\"` "


def build_params(node: RayNode) -> dict[str, str]:
    """Return a node's parameters of `ray start`, except those that `derive_params` returns."""
    group = node.group
    params = {**traits.start_params(group), **convert_resources(group.resources or {})}
    if group.labels:
        params["labels"] = ",".join(f"{key}={value}" for key, value in sorted(group.labels.items()))
    params.setdefault("metrics-export-port", str(ports.METRICS))
    params.setdefault("dashboard-agent-listen-port", str(ports.DASHBOARD_AGENT))
    params["block"] = "true"
    if not node.is_head:
        params.setdefault("address", node.gcs_address)
        return params
    params.setdefault("dashboard-host", "0.0.0.0")  # noqa: S104 - Ray's default, localhost, is out of the Service's reach
    if traits.is_autoscaling(node.cluster):
        params["no-monitor"] = "true"
    return params | gcs_fault_tolerance.build_head_params(node.cluster)


def convert_resources(resources: Mapping[str, str]) -> dict[str, str]:
    """Return the rayStartParams of a group's `resources`; invalid quantities are skipped."""
    params: dict[str, str] = {}
    custom: dict[str, float] = {}
    for name, amount in _format_readable(sorted(resources.items())):
        lower = name.lower()
        if (
            param := "num-gpus"
            if is_gpu(lower)
            else {"cpu": "num-cpus", "memory": "memory"}.get(lower)
        ):
            params[param] = str(amount.round_up())
        else:
            custom[name] = amount.to_float()
    return params | ({"resources": render(custom)} if custom else {})


def derive_params(params: Mapping[str, str], container: Body) -> dict[str, str]:
    """Return the rayStartParams that follow from a container's resources and are not set yet.

    The first accelerator is added to the parameter `resources`, if it contains no accelerator yet.
    If this parameter cannot be read, no GPU and no accelerator is derived.
    """
    resources = pod_json.body(container, "resources")
    limits = dict(_format_readable(pod_json.mapping(resources, "limits").items()))
    requests = dict(_format_readable(pod_json.mapping(resources, "requests").items()))
    derived_params = {
        "num-cpus": _round_whole(limits.get("cpu")) or _round_whole(requests.get("cpu")),
        "memory": _round_whole(limits.get("memory")),
    }
    amounts = _parse_amounts(params)
    if amounts is not None:
        derived_params["num-gpus"] = next(
            filter(None, (_round_whole(limits[key]) for key in sorted(limits) if is_gpu(key))), None
        )
    result = {
        param: value
        for param, value in derived_params.items()
        if value is not None and param not in params
    }
    if amounts is not None and amounts.keys().isdisjoint(ACCELERATORS.values()):
        for key in sorted(limits.keys() & ACCELERATORS.keys()):
            if not limits[key].is_zero:
                return result | {
                    "resources": render(amounts | {ACCELERATORS[key]: limits[key].to_float()})
                }
    return result


def _parse_amounts(params: Mapping[str, str]) -> dict[str, float] | None:
    """Return the parsed `resources` parameter; None if it is not a JSON object of numbers.

    As in Go, a null object is empty, and a null number is zero.
    """
    text = params.get("resources", "{}").strip(_QUOTES)
    try:
        amounts: dict[str, float | None] | None = msgspec.json.decode(
            text, type=dict[str, float | None] | None
        )
    except msgspec.DecodeError:
        return None
    return {name: amount or 0.0 for name, amount in (amounts or {}).items()}


def _format_readable(resources: Iterable[tuple[str, str]]) -> Iterable[tuple[str, Quantity]]:
    for name, amount in resources:
        try:
            yield name, quantity.parse(amount)
        except QuantityError:
            continue


def _round_whole(amount: Quantity | None) -> str | None:
    return None if amount is None or amount.is_zero else str(amount.round_up())


def render(amounts: Mapping[str, float]) -> str:
    """Return amounts as JSON in shell quotes, as Ray reads them: `'{"TPU":4,"a":0.5}'`.

    Strings are written as Go's JSON encoder does, which escapes characters of HTML and JavaScript.
    """
    pairs = (
        f"{go_json.escaped(msgspec.json.encode(name).decode())}:{_format_number(amount)}"
        for name, amount in sorted(amounts.items())
    )
    return f"'{{{','.join(pairs)}}}'"


def _format_number(amount: float) -> str:
    """Return a number in its shortest form as Go writes it.

    It has an exponent only below 1e-6 and from 1e21 on.
    """
    shortest = repr(float(amount))
    if amount == 0 or 1e-6 <= abs(amount) < 1e21:
        return format(Decimal(shortest), "f").removesuffix(".0")
    mantissa, exponent = shortest.split("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"


def build_command(params: Mapping[str, str], container: Body, *, is_head: bool) -> str:
    """Return the text of the `ray start` command, spaced as in KubeRay.

    Two spaces separate the flags, and one space follows the last flag.
    """
    text = "ray start --head " if is_head else "ray start "
    for option, value in sorted({**params, **derive_params(params, container)}.items()):
        if value.lower() not in {"true", "false"} or option in _TAKES_A_BOOLEAN:
            text += f" --{option}={value} "
        elif value.lower() == "true":
            text += f" --{option} "
    return text


def _get_shell(config: Config) -> list[str]:
    return ["/bin/bash", "-cl" if config.uses_login_shell else "-c", "--"]


def build_script_fields(config: Config, text: str, **resources: str) -> Body:
    """Return the fields of a container that runs a script.

    `resources` are the container's resource requests and limits, such as `cpu="200m"`.
    """
    return {
        "command": _get_shell(config),
        "args": [text],
        "resources": {"limits": resources, "requests": dict(resources)},
    }


def is_overwritten(annotations: Mapping[str, str]) -> bool:
    """Return whether an annotation leaves the container's command to the user."""
    return feature_gates.is_on(annotations, labels.OVERWRITE_CONTAINER_CMD)


def is_users_own(template: Body) -> bool:
    """Return whether the user's command runs `ray start`, or an annotation leaves that to it."""
    annotations = pod_json.mapping(pod_json.body(template, "metadata"), "annotations")
    return is_overwritten(annotations) or "ray start" in _find_own_command(template)


def _find_own_command(template: Body) -> str:
    container = pod_json.ray_container(template)
    arguments = [*pod_json.strings(container, "command"), *pod_json.strings(container, "args")]
    return "".join(f" {argument} " for argument in arguments)


def set_container_command(pod: Body, ray_start: str, config: Config, *, exports: str) -> None:
    """Make the Ray container run `ray start` after the user's command.

    The container stays unchanged if the user's command already runs `ray start`, or if an
    annotation leaves the command to the user. `exports` are shell commands that set environment
    variables before `ray start`.
    """
    if is_users_own(pod):
        return
    container, own = pod_json.ray_container(pod), _find_own_command(pod)
    generated = f"{exports}{_RAISE_OPEN_FILES}; {ray_start}"
    container["command"] = _get_shell(config)
    container["args"] = [f"{own} && {generated}" if own else generated]
