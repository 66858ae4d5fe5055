"""Capacity parity (ADR 41): limit a cluster's traffic by its running autoscaled replicas.

Before Ray's autoscaler has seen load, a deployment may run one replica even at a target capacity of
100 percent; under load it may run fifty. So a growing cluster gets only as much traffic as its
running replicas can carry. Each of them is assumed to carry the same load as a replica of the
cluster that has the traffic now. The autoscaler adds replicas only under load. A cluster with n
replicas therefore gets the traffic of n + 1 or 1.25 n replicas, whichever is more.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from common.api.opaque import Json
from common.ray import serve_status
from common.ray.serve_status import Deployment, ServeDetails

WHOLE: Final = 100
MAX_REPLICAS: Final = 2**31 - 1
"""Largest number of replicas that is accepted from a Serve config (2^31 - 1).

A number that is larger, negative or not an integer is invalid and counts as 1.
"""

Replicas = Mapping[str, int]
"""Running replicas by `<application>/<deployment>`."""


def limit_weight(
    source: ServeDetails, weight: int, growing: ServeDetails, whole: Replicas | None
) -> tuple[int, str]:
    """Return the maximum traffic weight of a growing cluster, in percent, and what limits it.

    `source` is the cluster that carries `weight` percent of the traffic now. `whole` are the
    replicas that the active cluster had while it carried all traffic; None if this process has not
    seen that. If nothing limits the traffic, the result is 100 and an empty reason.
    """
    return limit_by_needs(growing, _needs(source, weight, growing, whole))


def limit_by_needs(growing: ServeDetails, needs: Mapping[str, float] | None) -> tuple[int, str]:
    """Return the maximum traffic weight of a growing cluster, in percent, and what limits it.

    `needs` has, by deployment, the number of replicas that 100 percent of the traffic needs. If
    nothing limits the traffic, the result is 100 and an empty reason.
    """
    most, name, running, needed = min(_limits(growing, needs or {}), default=(WHOLE, "", 0, 0.0))
    if most >= WHOLE:
        return WHOLE, ""
    return most, f"{running} replicas of {name} run, and all of the traffic takes {needed:.0f}"


def find_lacking_deployment(
    source: ServeDetails, weight: int, growing: ServeDetails, held: int
) -> str | None:
    """Return the name of a deployment in `growing` that lacks replicas for more traffic, or None.

    `source` carries `weight` percent of the traffic, and `growing` carries `held` percent.
    """
    most, name, *_ = min(
        _limits(growing, _needs(source, weight, growing, None)), default=(WHOLE, "")
    )
    return name if most <= held else None


def _limits(
    growing: ServeDetails, needs: Mapping[str, float]
) -> Iterator[tuple[int, str, int, float]]:
    """Yield the deployments that limit the traffic of a growing cluster.

    Each item has the maximum weight, the name of the deployment, its number of running replicas,
    and the number that all traffic needs. A deployment that already runs its maximum number of
    replicas at the target capacity is no limit, since the autoscaler cannot add any.
    """
    for name, deployment in _deployments(growing):
        config, running, needed = (
            _autoscaling(deployment),
            len(deployment.running),
            needs.get(name, 0),
        )
        if needed == 0 or config is None:
            continue
        if running < int(_number(config, "max_replicas") * serve_status.capacity(growing) / WHOLE):
            yield int(max(running + 1, running * 5 / 4) * WHOLE / needed), name, running, needed


def _needs(
    source: ServeDetails, weight: int, growing: ServeDetails, whole: Replicas | None
) -> dict[str, float]:
    """Return, for each deployment, how many replicas are needed to carry all of the traffic.

    Deployments that do not scale with the load are left out. The estimate extrapolates from the
    replicas of `source` at its `weight` (percent). An autoscaler rounds up, so the last replica may
    be almost idle; at a small weight it would inflate the estimate and block the upgrade. Therefore
    the estimate is at most the number of replicas of both clusters together, but not below the
    estimate without the last replica. It is never above the number of replicas in `whole`.
    """
    others = {name: len(deployment.running) for name, deployment in _deployments(growing)}
    needs: dict[str, float] = {}
    for name, deployment in _deployments(source):
        config, running = _autoscaling(deployment), len(deployment.running)
        if config is None or weight == 0 or running <= max(1, _number(config, "min_replicas")):
            continue
        now = max(
            (running - 1) * WHOLE / weight,
            min(running * WHOLE / weight, running + others.get(name, 0)),
        )
        needs[name] = min(now, float((whole or {}).get(name, now)))
    return needs


def _deployments(details: ServeDetails) -> Iterator[tuple[str, Deployment]]:
    """Yield name and status of all deployments, sorted; a name is `<application>/<deployment>`."""
    for app_name, app in sorted(details.named().items()):
        for name, deployment in sorted(app.deployments.items()):
            yield f"{app_name}/{name}", deployment


def _autoscaling(deployment: Deployment) -> Json | None:
    value = (deployment.deployment_config or {}).get("autoscaling_config")
    return cast("Json", value) if isinstance(value, dict) else None


def _number(config: Json, name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and 0 <= value <= MAX_REPLICAS else 1
