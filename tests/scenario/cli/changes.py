"""Random changes of a RayService's spec, from a new image to no change at all."""

import copy
import random
from collections.abc import Callable
from typing import Any

from common.api.opaque import Json
from support.builders.ray_service import a_group, a_serve_config

Draw = random.Random
Spec = dict[str, Any]
"""Keywords of `Harness.apply`: config, serve, and fields of the spec."""


def _template(spec: Spec, draw: Draw) -> Json:
    config: Json = spec["config"]
    groups: list[Json] = [config["headGroupSpec"], *config["workerGroupSpecs"]]
    return draw.choice(groups)["template"]


def _group(spec: Spec, draw: Draw) -> Json:
    return draw.choice(spec["config"]["workerGroupSpecs"])


def _image(spec: Spec, draw: Draw) -> None:
    _template(spec, draw)["spec"]["containers"][0]["image"] = (
        f"rayproject/ray:2.{draw.randrange(40, 60)}.0"
    )


def _env(spec: Spec, draw: Draw) -> None:
    _template(spec, draw)["spec"]["containers"][0]["env"] = [
        {"name": "MODE", "value": str(draw.randrange(9))}
    ]


def _note(spec: Spec, draw: Draw) -> None:
    _template(spec, draw)["metadata"] = {"annotations": {"team": str(draw.randrange(9))}}


def _toleration(spec: Spec, draw: Draw) -> None:
    _template(spec, draw)["spec"]["tolerations"] = [
        {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]


def _scale(spec: Spec, draw: Draw) -> None:
    group = _group(spec, draw)
    group["replicas"] = draw.randrange(group.get("minReplicas", 0), group.get("maxReplicas", 5) + 1)


def _bounds(spec: Spec, draw: Draw) -> None:
    _group(spec, draw)["maxReplicas"] = draw.randrange(5, 9)


def _param(spec: Spec, draw: Draw) -> None:
    _group(spec, draw)["rayStartParams"] = {"num-cpus": str(draw.randrange(1, 9))}


def _add_group(spec: Spec, draw: Draw) -> None:
    spec["config"]["workerGroupSpecs"].append(a_group(f"g{draw.randrange(10_000)}"))


def _drop_group(spec: Spec, draw: Draw) -> None:
    if len(spec["config"]["workerGroupSpecs"]) > 1:
        spec["config"]["workerGroupSpecs"].pop(
            draw.randrange(len(spec["config"]["workerGroupSpecs"]))
        )


def _ray_version(spec: Spec, draw: Draw) -> None:
    spec["config"]["rayVersion"] = f"2.{draw.randrange(40, 60)}.0"


def _serve(spec: Spec, draw: Draw) -> None:
    spec["serve"] = a_serve_config(message=f"v{draw.randrange(1000)}")


def _delay(spec: Spec, draw: Draw) -> None:
    spec["rayClusterDeletionDelaySeconds"] = draw.randrange(1, 20)


def _inner_strategy(spec: Spec, draw: Draw) -> None:
    spec["config"]["suspend"] = draw.choice([False, None])


def _break(spec: Spec, draw: Draw) -> None:
    spec["config"]["headGroupSpec"]["headService"] = {"metadata": {"name": "mine"}}


def _fix(spec: Spec, draw: Draw) -> None:
    spec["config"]["headGroupSpec"].pop("headService", None)


def _nothing(spec: Spec, draw: Draw) -> None:
    pass


EDITS: tuple[Callable[[Spec, Draw], None], ...] = (
    *(_image, _env, _note, _toleration, _scale, _bounds, _param, _add_group, _drop_group),
    _ray_version,
    *(_serve, _serve, _delay, _inner_strategy, _break, _fix, _fix, _nothing),
)
"""Edits to draw from; an edit that is drawn more often is listed twice."""


def changed(spec: Spec, draw: Draw) -> Spec:
    """Return another spec, one or two edits away."""
    new = copy.deepcopy(spec)
    for edit in draw.sample(EDITS, draw.choice([1, 1, 2])):
        edit(new, draw)
    return new
