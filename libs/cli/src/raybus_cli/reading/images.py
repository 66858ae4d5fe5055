"""The container image of each group in the spec of a cluster, as written."""

from typing import cast

from common import labels
from common.api.opaque import Json


def of(config: Json) -> dict[str, str]:
    """Return the image of Ray's container by the name of its group; `head` is the head's."""
    groups = [(labels.HEAD, _object(config.get("headGroupSpec")))]
    groups += [(str(each.get("groupName", "")), each) for each in _objects(config.get("workerGroupSpecs"))]
    return {name: _image(group) for name, group in groups}


def _image(group: Json) -> str:
    containers = _objects(_object(_object(group.get("template")).get("spec")).get("containers"))
    return str(containers[0].get("image", "")) if containers else ""


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return [_object(each) for each in cast("list[object]", value)] if isinstance(value, list) else []
