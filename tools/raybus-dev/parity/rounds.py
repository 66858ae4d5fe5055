"""Changes of objects between two reconciliations, the same for both operators.

Pods start and fail, users edit objects, and cert-manager issues certificates. Each step is a
function of the objects, the step's fields, and the names of the pods from earlier rounds (`known`).
It returns the objects after the step, and may change the given objects in place.
"""

import copy
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from common import labels, pod_json
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from parity.comparable import order

_NOW: Final = re.compile(r"NOW([+-]\d+)s")
KEEP: Final = "parity/keep"
"""A finalizer that keeps an object in existence while it is being deleted."""


def dated(value: Any, now: datetime) -> Any:
    """Replace relative times such as `NOW-30s` in a JSON value by timestamps."""
    if isinstance(value, dict):
        return {key: dated(content, now) for key, content in cast("Json", value).items()}
    if isinstance(value, list):
        return [dated(item, now) for item in cast("list[Any]", value)]
    if isinstance(value, str) and (match := _NOW.fullmatch(value)):
        return rfc3339(
            (now + timedelta(seconds=int(match[1]))).replace(microsecond=0).astimezone(UTC)
        )
    return value


def play(objects: list[Body], steps: list[Json], known: frozenset[str]) -> list[Body]:
    """Return a copy of the objects after the steps of a round.

    `known` are the names of pods from earlier rounds.
    """
    objects = copy.deepcopy(objects)
    for step in steps:
        objects = _STEPS[step["do"]](objects, step, known)
    return objects


def _select_pods(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Return the pods of the step's group (`*`: all), in the same order for both operators."""
    pods = [body for body in objects if body["kind"] == "Pod"]
    group = step.get("group", "*")
    selected = [
        pod for pod in pods if group in {"*", pod["metadata"].get("labels", {}).get(labels.GROUP)}
    ]
    return sorted(selected, key=lambda pod: order(pod, known))


def _run(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Set pods of the step's group to running and ready, if they have no status yet."""
    for number, pod in enumerate(_select_pods(objects, {}, known)):
        if pod in _select_pods(objects, step, known) and not pod.get("status", {}).get("phase"):
            containers = [
                _build_running_status(container["name"])
                for container in pod_json.bodies(pod["spec"], "containers")
            ]
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "NOW-1s"}
            pod["status"] = {
                "phase": "Running",
                "podIP": f"10.0.0.{number}",
                "conditions": [ready],
                "containerStatuses": containers,
            }
    return objects


def _build_running_status(name: str) -> Json:
    return {
        "name": name,
        "ready": True,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        "state": {"running": {}},
    }


def _set(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Set the status of the first `step["most"]` live pods of the step's group."""
    alive = [
        pod
        for pod in _select_pods(objects, step, known)
        if "deletionTimestamp" not in pod["metadata"]
    ]
    for pod in alive[: step.get("most", 100)]:
        status = copy.deepcopy(step["status"])
        for container in status.get("containerStatuses", []):
            if container["name"] == "RAY":
                container["name"] = pod["spec"]["containers"][0]["name"]
        pod["status"] = status
    return objects


def _remove(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Remove the first `step["most"]` pods of the step's group, as the loss of a node does."""
    gone = {id(pod) for pod in _select_pods(objects, step, known)[: step.get("most", 100)]}
    return [body for body in objects if id(body) not in gone]


def _edit_field(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Set a field of the RayCluster to the step's value; without a value, remove the field."""
    cluster = next((body for body in objects if body["kind"] == "RayCluster"), None)
    if cluster is None:
        return objects
    *path, last = cast("list[Any]", step["path"])
    at: Any = cluster
    for key in path:
        if isinstance(key, int) and key >= len(at):
            return objects
        at = (
            at[key]
            if isinstance(key, int)
            else at.setdefault(key, [] if key.endswith("Specs") else {})
        )
    if isinstance(last, int) and last >= len(at):
        return objects
    before = copy.deepcopy(cluster["spec"])
    if step.get("value") is not None:
        at[last] = copy.deepcopy(step["value"])
    elif isinstance(at, list) or last in at:
        del at[last]
    cluster["metadata"]["generation"] += cluster["spec"] != before
    return objects


def _delete_kind(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    return [body for body in objects if body["kind"] != step["kind"]]


_CONTENT: Final[dict[str, tuple[str, Any]]] = {
    "Service": ("spec", {"selector": {"example.org/x": "y"}}),
    "Ingress": ("spec", {"rules": []}),
    "NetworkPolicy": ("spec", {"podSelector": {"matchLabels": {"example.org/x": "y"}}}),
    "Role": ("rules", []),
    "RoleBinding": ("subjects", []),
}
"""How the step `touch` changes the content of objects, by kind: the field, and its new value."""
_STRANGER: Final = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "name": "stranger",
    "uid": "uid-of-a-stranger",
}


def _change_kind(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Change all objects of the step's kind, as a user or another operator might."""
    for meta, body in [
        (body["metadata"], body) for body in objects if body["kind"] == step["kind"]
    ]:
        match step["how"]:
            case "orphan":
                meta.pop("ownerReferences", None)
            case "steal":
                meta["ownerReferences"] = [
                    {**_STRANGER, "controller": True, "blockOwnerDeletion": True}
                ]
            case "strip":
                meta.pop("labels", None)
            case "label":
                meta["labels"] = {**(meta.get("labels") or {}), "example.org/x": "y"}
            case "note":
                meta["annotations"] = {**(meta.get("annotations") or {}), "example.org/x": "y"}
            case _:
                field, value = _CONTENT.get(step["kind"], ("", None))
                if field:
                    body[field] = (
                        {**body[field], **copy.deepcopy(cast("Json", value))} if value else []
                    )
    return objects


def _issue_certificates(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Issue all requested certificates, as cert-manager does."""
    secrets = {body["metadata"]["name"] for body in objects if body["kind"] == "Secret"}
    for certificate in [
        certificate for certificate in objects if certificate["kind"] == "Certificate"
    ]:
        meta, name = certificate["metadata"], certificate["spec"]["secretName"]
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "observedGeneration": meta.get("generation", 1),
        }
        certificate["status"] = {
            "conditions": [ready | {"lastTransitionTime": "NOW-1s"}],
            "notAfter": "2099-01-01T00:00:00Z",
        }
        if name in secrets:
            continue
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": name,
                    "namespace": meta["namespace"],
                    "uid": f"uid-of-{name}",
                    "annotations": {"cert-manager.io/certificate-name": meta["name"]},
                },
                "type": "kubernetes.io/tls",
                "data": {"tls.crt": "U0VDUkVU", "tls.key": "U0VDUkVU", "ca.crt": "U0VDUkVU"},
            }
        )
    return objects


def _finish_jobs(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    for body in objects:
        if body["kind"] == "Job":
            body["status"] = {"conditions": [{"type": step["how"], "status": "True"}]}
    return objects


def _delete(objects: list[Body], step: Json, known: frozenset[str]) -> list[Body]:
    """Delete the RayCluster.

    If it has finalizers, it is only marked as being deleted. Otherwise all objects are deleted with
    it.
    """
    cluster = next((body for body in objects if body["kind"] == "RayCluster"), None)
    if cluster is None:
        return objects
    if cluster["metadata"].get("finalizers"):
        cluster["metadata"].setdefault("deletionTimestamp", step.get("at", "NOW-1s"))
        return objects
    return []


_STEPS: Final = {
    "run": _run,
    "set": _set,
    "remove": _remove,
    "edit": _edit_field,
    "lose": _delete_kind,
    "touch": _change_kind,
    "certify": _issue_certificates,
    "finish jobs": _finish_jobs,
    "delete": _delete,
}
