"""Ray's own resource counts (`--num-cpus`, `--memory`, `--num-gpus`, `--resources`) from Kubernetes quantities.

A group's top-level `resources` overwrite rayStartParams; what neither names is derived from the Ray container's limits.
Behaviour: spec raycluster §11.4 and the first table of §11.6; acceptance cases 86-88, 101.
"""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final, cast

from common import pod_json, quantity
from common.api.opaque import Body
from common.quantity import Quantity, QuantityError
from common.ray.desired_resources import is_gpu

ACCELERATORS: Final = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}
"""Kubernetes' name of an accelerator to Ray's."""

_QUOTES: Final = "'\"` "


def from_top_level(resources: Mapping[str, str]) -> dict[str, str]:
    """Return the rayStartParams of a group's `resources`; an entry that is no quantity is skipped."""
    params: dict[str, str] = {}
    custom: dict[str, float] = {}
    for name, amount in _readable(sorted(resources.items())):
        if param := _param_of(name.lower()):
            params[param] = str(amount.round_up())
        else:
            custom[name] = amount.to_float()
    if custom:
        params["resources"] = render(custom)
    return params


def derived(params: Mapping[str, str], container: Body) -> dict[str, str]:
    """Return the rayStartParams that follow from a container's resources and are not set yet."""
    resources = pod_json.body(container, "resources")
    limits = dict(_readable(pod_json.mapping(resources, "limits").items()))
    requests = dict(_readable(pod_json.mapping(resources, "requests").items()))
    found = {
        "num-cpus": _whole(limits.get("cpu")) or _whole(requests.get("cpu")),
        "memory": _whole(limits.get("memory")),
    } | _accelerators(params, limits)
    return {param: value for param, value in found.items() if value is not None and param not in params} | (
        _merged(params, limits)
    )


def render(amounts: Mapping[str, float]) -> str:
    """Write a map of amounts as Ray reads it on a shell's command line: `'{"TPU":4,"a":0.5}'`."""
    pairs = (f"{_text(name)}:{_number(amount)}" for name, amount in sorted(amounts.items()))
    return f"'{{{','.join(pairs)}}}'"


def _param_of(name: str) -> str | None:
    if name == "cpu":
        return "num-cpus"
    if name == "memory":
        return "memory"
    return "num-gpus" if is_gpu(name) else None


def _accelerators(params: Mapping[str, str], limits: Mapping[str, Quantity]) -> dict[str, str | None]:
    if _amounts(params) is None:
        return {}
    return {
        "num-gpus": next((_whole(limits[key]) for key in sorted(limits) if is_gpu(key) and _whole(limits[key])), None)
    }


def _merged(params: Mapping[str, str], limits: Mapping[str, Quantity]) -> dict[str, str]:
    """Add the first accelerator to the `resources` that are set, unless they have one."""
    amounts = _amounts(params)
    if amounts is None or not amounts.keys().isdisjoint(ACCELERATORS.values()):
        return {}
    for key in sorted(limits.keys() & ACCELERATORS.keys()):
        if not limits[key].is_zero:
            return {"resources": render(amounts | {ACCELERATORS[key]: limits[key].to_float()})}
    return {}


def _amounts(params: Mapping[str, str]) -> dict[str, float] | None:
    """Read the `resources` param as Go does, for which null is no amount; None when it is not an object of numbers.

    Then nothing is derived beside it.
    """
    try:
        decoded: object = json.loads(params.get("resources", "{}").strip(_QUOTES))
    except json.JSONDecodeError:
        return None
    if decoded is not None and not isinstance(decoded, dict):
        return None
    held = cast("dict[str, object]", decoded or {})
    amounts = {name: 0 if amount is None else amount for name, amount in held.items()}
    if any(isinstance(amount, bool) or not isinstance(amount, int | float) for amount in amounts.values()):
        return None
    return cast("dict[str, float]", amounts)


def _readable(resources: Iterable[tuple[str, str]]) -> Iterable[tuple[str, Quantity]]:
    for name, amount in resources:
        try:
            yield name, quantity.parse(amount)
        except QuantityError:
            continue


def _whole(amount: Quantity | None) -> str | None:
    return None if amount is None or amount.is_zero else str(amount.round_up())


def _text(name: str) -> str:
    """Write a string as Go's JSON encoder does: what HTML or JavaScript would read is escaped."""
    return json.dumps(name, ensure_ascii=False).translate(
        {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
    )


def _number(amount: float) -> str:
    """Write a number in its shortest form, as Go does: with an exponent only below 1e-6 and from 1e21 on."""
    shortest = repr(float(amount))
    if amount == 0 or 1e-6 <= abs(amount) < 1e21:
        plain = format(Decimal(shortest), "f")
        return plain.removesuffix(".0")
    mantissa, exponent = shortest.split("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"
