"""May the head pod be sent Serve requests: its label `ray.io/serve` (spec rayservice §11.2; acceptance 74, 75).

A proxy that answers is believed at once, one that fails must fail twice in the last three checks: KubeRay takes the head out
of the endpoints at the first slow answer.
"""

from collections.abc import Sequence
from typing import Final

from common import labels, ports
from common.api.core import Pod

WINDOW: Final = 3
FAILURES: Final = 2


def wanted(pod: Pod, answers: Sequence[bool], *, excluded: bool) -> str:
    """Return the value that the label should have."""
    if excluded:
        return "false"
    current = pod.metadata.labels.get(labels.SERVE, "")
    if not answers:
        return current or "false"
    if answers[-1]:
        return "true"
    recent = answers[-WINDOW:]
    failed = sum(not answer for answer in recent)
    return "false" if current != "true" or failed >= FAILURES else "true"


def serve_port(pod: Pod) -> int:
    """Return the port of the pod's Serve proxy."""
    container = pod.spec.containers[0] if pod.spec.containers else None
    declared = container.ports if container is not None else []
    return next((port.container_port for port in declared if port.name == "serve"), ports.SERVE)
