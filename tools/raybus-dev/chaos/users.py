"""The requests of users about RayClusters and RayServices, drawn from a seed. Pure.

A model tracks which objects exist. RayClusters are created, scaled, edited (the strategy Recreate
replaces pods), suspended, scaled down by an autoscaler, and deleted. RayServices are created,
upgraded at once or in steps, rolled back, reconfigured, and deleted.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import msgspec

from common.api.opaque import Body, Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from support.builders.ray_service import (
    a_cluster_config,
    a_group,
    a_ray_service,
    a_serve_config,
    a_strategy,
)

CLUSTERS: Final = 8
SERVICES: Final = 5
MAX_WORKERS: Final = 4
EVERY_SECONDS: Final = (0.6, 2.4)
VERSIONS: Final = ("2.52.0", "2.53.0", "2.54.0")
STEPS: Final[Json] = a_strategy(surge=50, step=25, interval=1)


class UserRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A user's request. `at` is in seconds since the faults began."""

    at: float
    what: str
    resource: Resource
    name: str
    body: Body | None = None
    """The object to create; None for other requests."""
    spec: Body | None = None
    """Fields of the spec to change. If `body` and `spec` are None, the object is deleted."""

    def __str__(self) -> str:
        return f"{self.what} {self.resource.kind} {self.name}"


class _Object(msgspec.Struct):
    """The state of an object as the model tracks it."""

    name: str
    workers: int = 1
    version: str = VERSIONS[0]
    before: str = VERSIONS[0]
    configs: int = 1
    is_suspended: bool = False
    is_autoscaled: bool = False


Step = tuple[str, Resource, _Object, dict[str, Any]]


class Users:
    """Draws the requests of all users of a run, and tracks the objects that exist."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._clusters: list[_Object] = []
        self._services: list[_Object] = []
        self._count = 0

    def requests(self, seconds: float) -> Iterator[UserRequest]:
        """Yield the requests of a run of this length, in the order of their times."""
        at = 0.0
        while at < seconds:
            yield self._draw_request(at)
            at += self._random.uniform(*EVERY_SECONDS)

    def _draw_request(self, at: float) -> UserRequest:
        is_cluster = self._random.random() < 0.6
        have, most = (self._clusters, CLUSTERS) if is_cluster else (self._services, SERVICES)
        if not have or (len(have) < most and self._random.random() < 0.25):
            return self._create_cluster(at) if is_cluster else self._create_service(at)
        thing = self._random.choice(have)
        if len(have) > most // 2 and self._random.random() < 0.1:
            have.remove(thing)
            return UserRequest(
                at=at,
                what="delete",
                resource=RAY_CLUSTER if is_cluster else RAY_SERVICE,
                name=thing.name,
            )
        return self._change_cluster(at, thing) if is_cluster else self._change_service(at, thing)

    def _create_cluster(self, at: float) -> UserRequest:
        self._count += 1
        thing = _Object(
            name=f"c{self._count:03d}",
            workers=self._random.randint(1, 3),
            is_autoscaled=self._random.random() < 0.3,
        )
        self._clusters.append(thing)
        spec = _build_cluster_spec(thing)
        if thing.is_autoscaled:
            spec["enableInTreeAutoscaling"] = True
        else:
            spec["upgradeStrategy"] = {"type": "Recreate"}
        body: Body = {
            "apiVersion": RAY_CLUSTER.api_version,
            "kind": RAY_CLUSTER.kind,
            "metadata": {"name": thing.name},
            "spec": spec,
        }
        return UserRequest(at=at, what="create", resource=RAY_CLUSTER, name=thing.name, body=body)

    def _create_service(self, at: float) -> UserRequest:
        self._count += 1
        thing = _Object(name=f"s{self._count:03d}")
        self._services.append(thing)
        in_steps = self._random.random() < 0.5
        fields: Json = {"upgradeStrategy": STEPS} if in_steps else {}
        body = a_ray_service(
            name=thing.name,
            config=_build_config(thing),
            serve=a_serve_config(message="v1"),
            rayClusterDeletionDelaySeconds=self._random.choice([0, 5]),
            **fields,
        )
        body["metadata"] = {"name": thing.name}
        return UserRequest(at=at, what="create", resource=RAY_SERVICE, name=thing.name, body=body)

    def _change_cluster(self, at: float, thing: _Object) -> UserRequest:
        changes: list[Callable[[float, _Object], UserRequest]] = [
            self._scale,
            self._scale,
            self._suspend,
        ]
        if thing.is_autoscaled:
            changes = (
                [self._autoscale] if thing.workers and not thing.is_suspended else [self._scale]
            )
        else:
            changes.append(self._edit)
        return self._random.choice(changes)(at, thing)

    def _scale(self, at: float, thing: _Object) -> UserRequest:
        choices = [count for count in range(MAX_WORKERS + 1) if count != thing.workers]
        if thing.is_autoscaled:  # only the autoscaler may make it smaller
            choices = [count for count in choices if count > thing.workers] or [thing.workers]
        thing.workers = self._random.choice(choices)
        return _build_change(
            at, f"scale to {thing.workers}", thing, {"workerGroupSpecs": _build_groups(thing)}
        )

    def _suspend(self, at: float, thing: _Object) -> UserRequest:
        thing.is_suspended = not thing.is_suspended
        return _build_change(
            at,
            "suspend" if thing.is_suspended else "resume",
            thing,
            {"suspend": thing.is_suspended},
        )

    def _edit(self, at: float, thing: _Object) -> UserRequest:
        thing.version = self._draw_other_version(thing.version)
        return _build_change(at, f"edit to {thing.version}", thing, _build_cluster_spec(thing))

    def _autoscale(self, at: float, thing: _Object) -> UserRequest:
        thing.workers -= 1
        spec = {"workerGroupSpecs": _build_groups(thing)}
        return _build_change(at, f"autoscale to {thing.workers}", thing, spec)

    def _change_service(self, at: float, thing: _Object) -> UserRequest:
        match self._random.choice(["upgrade", "upgrade", "roll back", "configure"]):
            case "upgrade":
                thing.before, thing.version = thing.version, self._draw_other_version(thing.version)
                spec: Body = {"rayClusterConfig": _build_config(thing)}
                what = f"upgrade to {thing.version}"
            case "roll back":
                thing.before, thing.version = thing.version, thing.before
                spec, what = (
                    {"rayClusterConfig": _build_config(thing)},
                    f"roll back to {thing.version}",
                )
            case _:
                thing.configs += 1
                spec = {"serveConfigV2": a_serve_config(message=f"v{thing.configs}")}
                what = f"configure v{thing.configs}"
        return UserRequest(at=at, what=what, resource=RAY_SERVICE, name=thing.name, spec=spec)

    def _draw_other_version(self, version: str) -> str:
        return self._random.choice([candidate for candidate in VERSIONS if candidate != version])


def _build_change(at: float, what: str, thing: _Object, spec: Body) -> UserRequest:
    return UserRequest(at=at, what=what, resource=RAY_CLUSTER, name=thing.name, spec=spec)


def _build_cluster_spec(thing: _Object) -> Body:
    config = a_cluster_config(image=f"rayproject/ray:{thing.version}")
    return {**config, "workerGroupSpecs": _build_groups(thing)}


def _build_groups(thing: _Object) -> list[Json]:
    container = {"name": "ray-worker", "image": f"rayproject/ray:{thing.version}"}
    size: Json = {"replicas": thing.workers, "minReplicas": 0, "maxReplicas": MAX_WORKERS}
    return [a_group(**size, template={"spec": {"containers": [container]}})]


def _build_config(thing: _Object) -> Json:
    group = a_group(minReplicas=1, replicas=1)
    return a_cluster_config(
        group, image=f"rayproject/ray:{thing.version}", enableInTreeAutoscaling=True
    )
