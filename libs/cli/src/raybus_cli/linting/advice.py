"""Advice on manifests that are valid: settings that cost availability, money or time."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, cast

from common.api import ray_service
from common.api.opaque import Json
from common.ray import serve_writer, service_ports
from common.upgrade.controls import Policy
from raybus_cli.linting.shape import Problem
from raybus_cli.manifests.reading import Document, Place
from raybus_cli.planning import picture, steps

_VERSION: Final = re.compile(r"\d+\.\d+(\.\d+)?")
LONG: Final = timedelta(hours=2)


def problems(document: Document) -> list[Problem]:
    """Return the advice for a document."""
    spec: Json = document.body.get("spec") or {}
    if document.kind != ray_service.KIND:
        return list(_of_cluster(spec, ("spec",)))
    config: Json = spec.get("rayClusterConfig") or {}
    return [*_of_cluster(config, ("spec", "rayClusterConfig")), *_of_service(spec, config)]


def _of_service(spec: Json, config: Json) -> Iterator[Problem]:
    head = ("spec", "rayClusterConfig", "headGroupSpec")
    if not service_ports.of_serve(config) and "serveService" not in spec:
        yield (*head, "template", "spec", "containers"), "no port named serve: clients could not reach the applications"
    if not str(spec.get("serveConfigV2") or "").strip():
        yield ("spec", "serveConfigV2"), "is empty: there is nothing to serve"
    group: Json = config.get("headGroupSpec") or {}
    params: Json = group.get("rayStartParams") or {}
    if config.get("workerGroupSpecs") and str(params.get("num-cpus", "")) != "0":
        yield (
            (*head, "rayStartParams"),
            'num-cpus: "0" would keep replicas off the head, which then survives their load',
        )
    if not config.get("gcsFaultToleranceOptions"):
        text = "without gcsFaultToleranceOptions a lost head pod takes the applications down until it is back"
        yield ("spec", "rayClusterConfig"), text
    if spec.get("rayClusterDeletionDelaySeconds") == 0:
        text = "0 leaves no time for a rollback: 'raybus undo' needs the old cluster"
        yield ("spec", "rayClusterDeletionDelaySeconds"), text
    yield from _of_steps(spec)


def _of_steps(spec: Json) -> Iterator[Problem]:
    strategy: Json = spec.get("upgradeStrategy") or {}
    options: Json = strategy.get("clusterUpgradeOptions") or {}
    if strategy.get("type") != serve_writer.INCREMENTAL:
        return
    surge, step, interval = (
        options.get("maxSurgePercent", 100),
        options.get("stepSizePercent"),
        options.get("intervalSeconds"),
    )
    place = ("spec", "upgradeStrategy", "clusterUpgradeOptions")
    if not isinstance(surge, int) or not isinstance(step, int) or not isinstance(interval, int) or step <= 0:
        return
    rollout = steps.simulate(Policy(surge=surge, step=step, interval=timedelta(seconds=interval)))
    if not rollout.is_finished:
        yield place, f"with maxSurgePercent {surge} no upgrade ever ends"
        return
    if surge % step:
        text = (
            f"{surge} is no multiple of stepSizePercent {step}: {len(rollout.weights)} moves, some smaller than a step"
        )
        yield (*place, "maxSurgePercent"), text
    if rollout.length >= LONG:
        took = picture.length(round(rollout.length.total_seconds()))
        yield (*place, "intervalSeconds"), f"an upgrade moves its traffic for {took}; 'raybus plan' tries other values"


def _of_cluster(config: Json, place: Place) -> Iterator[Problem]:
    version = str(config.get("rayVersion") or "")
    for group, below in _groups(config, place):
        template: Json = group.get("template") or {}
        spec: Json = template.get("spec") or {}
        containers = cast("list[Json]", spec.get("containers") or [])
        at = (*below, "template", "spec", "containers", 0)
        if containers:
            yield from _of_container(containers[0], version, at)
        yield from _of_scale(group, below)


def _of_container(container: Json, version: str, place: Place) -> Iterator[Problem]:
    image = str(container.get("image") or "")
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    if image and "@" not in image and tag in {"", "latest"}:
        yield (*place, "image"), f"{image} may be another image tomorrow: use a version"
    held = _VERSION.match(tag)
    if held is not None and version and not _is_same(held.group(), version):
        yield (*place, "image"), f"the image is Ray {held.group()} by its tag, but rayVersion is {version}"
    resources: Json = container.get("resources") or {}
    if not resources.get("requests") and not resources.get("limits"):
        text = (
            "no resources: Ray counts all CPUs of the node as its own, and scheduler and autoscaler cannot correct that"
        )
        yield (*place, "resources"), text


def _of_scale(group: Json, place: Place) -> Iterator[Problem]:
    replicas, least, most = (group.get(key) for key in ("replicas", "minReplicas", "maxReplicas"))
    if isinstance(replicas, int) and isinstance(least, int) and replicas < least:
        yield (*place, "replicas"), f"{replicas} is less than minReplicas {least}, which takes precedence"
    if isinstance(replicas, int) and isinstance(most, int) and replicas > most:
        yield (*place, "replicas"), f"{replicas} is more than maxReplicas {most}, which takes precedence"


def _groups(config: Json, place: Place) -> Iterator[tuple[Json, Place]]:
    head = config.get("headGroupSpec")
    if isinstance(head, dict):
        yield cast("Json", head), (*place, "headGroupSpec")
    workers = config.get("workerGroupSpecs")
    for at, group in enumerate(cast("list[object]", workers) if isinstance(workers, list) else []):
        if isinstance(group, dict):
            yield cast("Json", group), (*place, "workerGroupSpecs", at)


def _is_same(tag: str, version: str) -> bool:
    both = min(tag.count("."), version.count(".")) + 1
    return tag.split(".")[:both] == version.split(".")[:both]
