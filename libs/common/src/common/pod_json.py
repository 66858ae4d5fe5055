"""Read and edit pods as JSON: containers, environment variables, mounts and volumes.

A pod template stays the JSON that the user wrote, so that unknown fields are kept. The `add_*` and
`ensure_*` functions modify their argument; callers pass their own copy. JSON null counts as absent.
"""

from typing import Any, TypeVar, cast

from common.api.opaque import Body

T = TypeVar("T")


def bodies(owner: Body, field: str) -> list[Body]:
    """Return the objects in a list field of `owner`, for reading; empty if absent.

    Entries that are not objects are skipped.
    """
    value = owner.get(field)
    if not isinstance(value, list):
        return []
    return [cast("Body", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def body(owner: Body, field: str) -> Body:
    """Return the object in a field of `owner`, for reading; empty if absent."""
    value = owner.get(field)
    return cast("Body", value) if isinstance(value, dict) else {}


def mapping(owner: Body, field: str) -> dict[str, str]:
    """Return the map of strings in a field of `owner`, for reading; empty if absent."""
    value = owner.get(field)
    return cast("dict[str, str]", value) if isinstance(value, dict) else {}


def text(owner: Body, field: str) -> str:
    """Return the string in a field of `owner`; empty if absent."""
    value = owner.get(field)
    return value if isinstance(value, str) else ""


def strings(owner: Body, field: str) -> list[str]:
    """Return the list of strings in a field of `owner`, for reading; empty if absent."""
    return cast("list[str]", owner.get(field) or [])


def ensure_list(owner: Body, field: str) -> list[Any]:
    """Return the list in a field of `owner`, for editing; an absent list is created."""
    if owner.get(field) is None:
        owner[field] = []
    return cast("list[Any]", owner[field])


def ensure_body(owner: Body, field: str) -> Body:
    """Return the object in a field of `owner`, for editing; an absent object is created."""
    if owner.get(field) is None:
        owner[field] = {}
    return cast("Body", owner[field])


def spec(template: Body) -> Body:
    """Return the spec of a template or a pod."""
    return body(template, "spec")


def containers(template: Body) -> list[Body]:
    """Return the containers of a template or a pod."""
    return bodies(spec(template), "containers")


def ray_container(template: Body) -> Body:
    """Return the Ray container of a template, which is the first one; empty if there is none."""
    all_containers = containers(template)
    return all_containers[0] if all_containers else {}


def named(owner: Body, field: str, name: str) -> Body | None:
    """Return the entry called `name` in a list field, such as a variable or a port, or None."""
    return next((item for item in bodies(owner, field) if item.get("name") == name), None)


def has_env(container: Body, name: str) -> bool:
    """Return whether a container lists an environment variable, with any value."""
    return named(container, "env", name) is not None


def has_mount(container: Body, *, name: str | None = None, path: str | None = None) -> bool:
    """Return whether a container mounts a volume of this name, or anything at this path."""
    mounts = bodies(container, "volumeMounts")
    return any(
        (name is not None and mount.get("name") == name)
        or (path is not None and mount.get("mountPath") == path)
        for mount in mounts
    )


def copied(value: T) -> T:
    """Return a deep copy of a JSON value, in a third of the time of `copy.deepcopy`.

    Parts that occur twice in the value are copied twice.
    """
    if isinstance(value, dict):
        return cast("T", {name: copied(item) for name, item in cast("Body", value).items()})
    if isinstance(value, list):
        return cast("T", [copied(item) for item in cast("list[Any]", value)])
    return value


def shared(container: Body, *fields: str) -> Body:
    """Copy `fields` of a container, to share them with another one; absent fields are left out."""
    return {field: copied(container[field]) for field in fields if container.get(field) is not None}


def literal(name: str, value: str) -> Body:
    """Build an environment variable with a literal value."""
    return {"name": name, "value": value}


def from_field(name: str, path: str) -> Body:
    """Build an environment variable with the value of a pod's field, such as `status.podIP`."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def add_env(container: Body, *envs: Body) -> None:
    """Append copies of environment variables.

    If a container lists a name twice, Kubernetes uses the last entry.
    """
    ensure_list(container, "env").extend(map(copied, envs))


def add_missing_env(container: Body, *envs: Body) -> None:
    """Append environment variables whose names the container does not list yet."""
    for env in envs:
        if not has_env(container, env["name"]):
            add_env(container, env)


def add_missing_volume(pod: Body, volume: Body) -> None:
    """Append a volume unless the pod has one with its name."""
    if named(pod["spec"], "volumes", volume["name"]) is None:
        ensure_list(pod["spec"], "volumes").append(volume)
