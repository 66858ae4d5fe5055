"""Decides whether a difference between the operators follows from an intended difference.

A rule in `differences.yaml` may name an intended difference as its cause (`CAUSES`). It then
permits only differences that follow from this cause. Every function gets the outcomes of KubeRay
(`theirs`) and of raybus (`ours`).
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from common import labels
from common.api.opaque import Body, Json
from parity.comparable import Difference


def of_deleted_pods(difference: Difference, theirs: Json, ours: Json) -> bool:
    """Return whether the difference follows from worker pods that raybus deleted and KubeRay kept.

    Consequences are the missing pods, their counts, their addresses and their Events.
    """
    gone, follows = _find_pods_only_raybus_deletes(theirs, ours), False
    match difference.place.split("/")[1:]:
        case ["objects", title]:
            follows = title in gone and difference.ours is None
        case ["writes", write]:
            follows = write.removeprefix("delete ") in gone and difference.theirs is None
        case [
            "events",
            "Normal DeletedWorkerPod",
        ]:  # one text for each pod that only raybus deletes
            follows = difference.ours is not None
        case ["events", "Normal MTLSCertificatesUpdated"]:
            follows = difference.theirs is None and any(map(_get_address, gone.values()))
        case ["objects", title, "spec", "ipAddresses", _]:
            named = [{*each["objects"][title]["spec"]["ipAddresses"]} for each in (theirs, ours)]
            follows = named[1] <= named[0] and named[0] - named[1] <= {
                *map(_get_address, gone.values())
            }
        case ["objects", _, "status", "readyWorkerReplicas"]:
            follows = _count_fewer(difference) == sum(map(_is_ready, gone.values()))
        case ["objects", _, "status", "availableWorkerReplicas"]:
            follows = _count_fewer(difference) == sum(
                _get_phase(pod) == "Running" for pod in gone.values()
            )
        case _:
            pass
    return bool(gone) and follows


def of_gathered_addresses(difference: Difference, theirs: Json, ours: Json) -> bool:
    """Return whether KubeRay, too, once wrote the addresses of raybus's final certificate.

    raybus collects addresses for some seconds, so KubeRay's final certificate may have newer ones.
    """
    title = difference.place.split("/")[2]
    written = f"(IPs: [{' '.join(ours['objects'][title]['spec']['ipAddresses'])}])"
    notes: list[list[str]] = [
        each["events"].get("Normal MTLSCertificatesUpdated", []) for each in (theirs, ours)
    ]
    return all(any(written in note for note in some) for some in notes)


def of_replaced_pods(_: Difference, theirs: Json, ours: Json) -> bool:
    """Return whether the condition `RayClusterProvisioned` differs only because of replaced pods.

    KubeRay ignores a missing head, and pods that it has created in the same round.
    """
    left = [
        pod
        for title, pod in _index_pods(theirs).items()
        if f"create {title}" not in theirs["writes"]
    ]
    own = [
        pod
        for pod in _index_pods(ours).values()
        if labels.NODE_TYPE in pod["metadata"].get("labels", {})
    ]
    has_head = any(pod["metadata"]["labels"][labels.NODE_TYPE] == labels.HEAD for pod in own)
    return all(map(_is_ready, left)) and not (has_head and all(map(_is_ready, own)))


def of_repeated_times(difference: Difference, _: Json, __: Json) -> bool:
    """Return whether KubeRay only has additional runs in an hour that occurs twice.

    When clocks are set back, KubeRay runs a job in both occurrences of the hour, raybus only in the
    first one. Both lists have the same length, so raybus's list ends with later runs.
    """
    theirs, ours = (
        [*map(datetime.fromisoformat, text.split())]
        for text in (difference.theirs, difference.ours)
    )
    repeated = [run for run in theirs if run not in ours]
    common = [run for run in theirs if run in ours]
    return (
        bool(repeated)
        and common == ours[: len(common)]
        and all(run - timedelta(hours=1) in common for run in repeated)
    )


CAUSES: Final[dict[str, Callable[[Difference, Json, Json], bool]]] = {
    "workers that raybus alone deletes": of_deleted_pods,
    "pods that are being replaced": of_replaced_pods,
    "addresses that raybus gathers": of_gathered_addresses,
    "times that exist twice": of_repeated_times,
}
"""The causes that a rule in `differences.yaml` may name, with the functions that check them."""


def _find_pods_only_raybus_deletes(theirs: Json, ours: Json) -> dict[str, Body]:
    """Return the pods that only raybus deletes, as they are in KubeRay's outcome."""
    return {
        title: pod
        for title, pod in _index_pods(theirs).items()
        if title not in ours["objects"]
        and f"delete {title}" in ours["writes"]
        and f"delete {title}" not in theirs["writes"]
    }


def _index_pods(outcome: Json) -> dict[str, Body]:
    return {title: body for title, body in outcome["objects"].items() if body["kind"] == "Pod"}


def _count_fewer(difference: Difference) -> int:
    return (difference.theirs or 0) - (difference.ours or 0)


def _get_phase(pod: Body) -> str:
    return pod.get("status", {}).get("phase", "")


def _get_address(pod: Body) -> str:
    return pod.get("status", {}).get("podIP", "")


def _is_ready(pod: Body) -> bool:
    conditions: list[Any] = pod.get("status", {}).get("conditions", [])
    return _get_phase(pod) == "Running" and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
