"""The only builder of subject strings.

`ray.state.<partition>.<kind>.<namespace>.<name>`   the last state of one object      stream RAY_STATE
`ray.state.<partition>.synced`                      "this partition is complete"      stream RAY_STATE
`ray.events.<namespace>.<rayservice>.<type>`        one step of an upgrade            stream RAY_EVENTS

A token of a subject may not hold a dot, a name may, and no Kubernetes name holds an underscore: so a dot is written as
an underscore.
"""

from typing import Final

STATE_STREAM: Final = "RAY_STATE"
EVENTS_STREAM: Final = "RAY_EVENTS"
STATE_PREFIX: Final = "ray.state"
EVENTS_PREFIX: Final = "ray.events"


def token(name: str) -> str:
    """Write a Kubernetes name as one token."""
    return name.replace(".", "_")


def name(token: str) -> str:
    """Read a Kubernetes name back from a token."""
    return token.replace("_", ".")


def state(partition: int, kind: str, namespace: str, object_name: str) -> str:
    """Return the subject that holds the last state of an object."""
    return f"{STATE_PREFIX}.{partition}.{kind.lower()}.{token(namespace)}.{token(object_name)}"


def synced(partition: int) -> str:
    """Return the subject of the watcher's word that a partition holds all there is."""
    return f"{STATE_PREFIX}.{partition}.synced"


def partition_filter(partition: int) -> str:
    """Return the filter that matches all of one partition."""
    return f"{STATE_PREFIX}.{partition}.>"


def upgrade_event(namespace: str, rayservice: str, event_type: str) -> str:
    """Return the subject of one step of an upgrade."""
    return f"{EVENTS_PREFIX}.{token(namespace)}.{token(rayservice)}.{event_type}"
