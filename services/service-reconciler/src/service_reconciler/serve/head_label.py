"""May the head pod be sent Serve requests: its label `ray.io/serve` (spec rayservice §11.2; acceptance 74, 75).

A proxy that answers counts at once, one that fails must fail twice in the last three checks: KubeRay takes the head out
of the endpoints at the first slow answer.
"""

from collections.abc import Sequence
from typing import Final

from common import labels
from common.api.core import Pod
from common.ray.view import CHECKS_KEPT

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
    recent = answers[-CHECKS_KEPT:]
    failed = sum(not answer for answer in recent)
    return "false" if current != "true" or failed >= FAILURES else "true"
