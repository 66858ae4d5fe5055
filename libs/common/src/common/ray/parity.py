"""Share of the traffic that autoscaled replicas can carry, measured by those that carry it now: capacity parity (ADR 11).

A target capacity of 100 percent is one replica where Ray's autoscaler has seen no load yet, and fifty where it has. So a cluster
gets no more of the traffic than its running replicas carry at the rate of those that carried all of it. It may get what one more
replica, or a quarter more of them, would carry: the autoscaler has to have something to follow.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from common.api.opaque import Json
from common.ray import serve_status
from common.ray.serve_status import Deployment, ServeDetails

WHOLE: Final = 100
MOST: Final = 2**31 - 1
"""Replicas; a dashboard may report any number."""

Replicas = Mapping[str, int]
"""Running replicas by `<application>/<deployment>`."""


def limit(
    source: ServeDetails, weight: int, growing: ServeDetails, whole: Replicas | None
) -> tuple[int, str]:
    """Return the most traffic that a growing cluster may get beside a source that has `weight`, and why not more.

    `whole` are the replicas with which a cluster carried all of the traffic, where this process saw that.
    """
    return takeover(growing, _needs(source, weight, growing, whole))


def takeover(growing: ServeDetails, needs: Mapping[str, float] | None) -> tuple[int, str]:
    """Return the most traffic that a cluster may get, where all of it needs so many replicas, and why not more."""
    most, name, running, needed = min(_limits(growing, needs or {}), default=(WHOLE, "", 0, 0.0))
    if most >= WHOLE:
        return WHOLE, ""
    return most, f"{running} replicas of {name} run, and all of the traffic takes {needed:.0f}"


def lacking(source: ServeDetails, weight: int, growing: ServeDetails, held: int) -> str | None:
    """Return the deployment with too few replicas for a growing cluster to get more than the `held` percent that it has."""
    most, name, *_ = min(
        _limits(growing, _needs(source, weight, growing, None)), default=(WHOLE, "")
    )
    return name if most <= held else None


def _limits(
    growing: ServeDetails, needs: Mapping[str, float]
) -> Iterator[tuple[int, str, int, float]]:
    """Yield for each deployment that limits the traffic: how much it may be, its name, its replicas, and those that all of it takes.

    What the autoscaler may start no more replicas of limits nothing: it has all that it may have at its capacity.
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
    """Return how many replicas of each deployment all of the traffic takes; 0 where the load does not decide how many there are.

    An autoscaler rounds up, so the last of the replicas that carry a part of the traffic may have next to nothing to do. At a small
    weight it would count as many, and an upgrade would wait for replicas that no load asks for. So what both clusters' replicas
    are together is enough, unless these without the last one are more.
    """
    others = {name: len(each.running) for name, each in _deployments(growing)}
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
    """Yield all deployments as `<application>/<deployment>`."""
    for app_name, app in sorted(details.named().items()):
        for name, deployment in sorted(app.deployments.items()):
            yield f"{app_name}/{name}", deployment


def _autoscaling(deployment: Deployment) -> Json | None:
    found = (deployment.deployment_config or {}).get("autoscaling_config")
    return cast("Json", found) if isinstance(found, dict) else None


def _number(config: Json, name: str) -> int:
    found = config.get(name)
    return found if isinstance(found, int) and 0 <= found <= MOST else 1
