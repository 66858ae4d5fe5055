"""Whether all pods that exist run (spec raycluster §13.1)."""

from collections.abc import Sequence

from common.api.core import Pod


def all_running(pods: Sequence[Pod]) -> bool:
    """Tell whether there are pods, each in phase Running and none with a Ready condition that is not True."""
    return bool(pods) and all(_is_running(pod) for pod in pods)


def _is_running(pod: Pod) -> bool:
    ready = pod.condition("Ready")
    return pod.status.phase == "Running" and (ready is None or ready.status == "True")
