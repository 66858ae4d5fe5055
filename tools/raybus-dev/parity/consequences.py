"""Decides whether a difference follows from an intended one, computed from both outcomes.

A rule that names such a cause declares no other differences.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from common import labels
from common.api.opaque import Body, Json
from parity.comparable import Difference


def of_deleted_pods(found: Difference, theirs: Json, ours: Json) -> bool:
    """Return whether the difference is a consequence of worker pods that only raybus deletes.

    Consequences are the pods themselves, their counts, their addresses and their Events.
    """
    gone, follows = _gone(theirs, ours), False
    match found.place.split("/")[1:]:
        case ["objects", title]:
            follows = title in gone and found.ours is None
        case ["writes", write]:
            follows = write.removeprefix("delete ") in gone and found.theirs is None
        case [
            "events",
            "Normal DeletedWorkerPod",
        ]:  # a text of its own, beside those about pods that both delete
            follows = found.ours is not None
        case ["events", "Normal MTLSCertificatesUpdated"]:
            follows = found.theirs is None and any(map(_address, gone.values()))
        case ["objects", title, "spec", "ipAddresses", _]:
            named = [{*each["objects"][title]["spec"]["ipAddresses"]} for each in (theirs, ours)]
            follows = named[1] <= named[0] and named[0] - named[1] <= {
                *map(_address, gone.values())
            }
        case ["objects", _, "status", "readyWorkerReplicas"]:
            follows = _fewer(found) == sum(map(_is_ready, gone.values()))
        case ["objects", _, "status", "availableWorkerReplicas"]:
            follows = _fewer(found) == sum(_phase(pod) == "Running" for pod in gone.values())
        case _:
            pass
    return bool(gone) and follows


def of_gathered_addresses(found: Difference, theirs: Json, ours: Json) -> bool:
    """Return whether both operators wrote raybus's certificate addresses at some time.

    raybus collects addresses for some seconds, so KubeRay's certificate may contain newer ones.
    """
    title = found.place.split("/")[2]
    written = f"(IPs: [{' '.join(ours['objects'][title]['spec']['ipAddresses'])}])"
    notes: list[list[str]] = [
        each["events"].get("Normal MTLSCertificatesUpdated", []) for each in (theirs, ours)
    ]
    return all(any(written in note for note in some) for some in notes)


def of_replaced_pods(_: Difference, theirs: Json, ours: Json) -> bool:
    """Return whether `RayClusterProvisioned` differs only by how replaced pods are counted.

    KubeRay ignores a missing head and the pods that it creates in the same round.
    """
    left = [
        pod for title, pod in _pods(theirs).items() if f"create {title}" not in theirs["writes"]
    ]
    own = [
        pod for pod in _pods(ours).values() if labels.NODE_TYPE in pod["metadata"].get("labels", {})
    ]
    has_head = any(pod["metadata"]["labels"][labels.NODE_TYPE] == labels.HEAD for pod in own)
    return all(map(_is_ready, left)) and not (has_head and all(map(_is_ready, own)))


def of_repeated_times(found: Difference, _: Json, __: Json) -> bool:
    """Return whether raybus lacks only runs of KubeRay that come an hour after one that both have.

    KubeRay runs a job in both hours that have one name when the clock is set back. Both lists have
    the same length, so that of raybus ends with later runs.
    """
    theirs, ours = (
        [*map(datetime.fromisoformat, text.split())] for text in (found.theirs, found.ours)
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
"""Causes that a rule may name."""


def _gone(theirs: Json, ours: Json) -> dict[str, Body]:
    """Return the pods that only raybus deletes, as KubeRay leaves them."""
    return {
        title: pod
        for title, pod in _pods(theirs).items()
        if title not in ours["objects"]
        and f"delete {title}" in ours["writes"]
        and f"delete {title}" not in theirs["writes"]
    }


def _pods(outcome: Json) -> dict[str, Body]:
    return {title: body for title, body in outcome["objects"].items() if body["kind"] == "Pod"}


def _fewer(found: Difference) -> int:
    return (found.theirs or 0) - (found.ours or 0)


def _phase(pod: Body) -> str:
    return pod.get("status", {}).get("phase", "")


def _address(pod: Body) -> str:
    return pod.get("status", {}).get("podIP", "")


def _is_ready(pod: Body) -> bool:
    conditions: list[Any] = pod.get("status", {}).get("conditions", [])
    return _phase(pod) == "Running" and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )
