"""What follows from the observed state of a RayJob alone."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from common.api.core import Pod
from job_reconciler.observed import Observed
from job_reconciler.settings import Config
from support.builders.ray_job import a_ray_job

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def a_head(name: str, version: int, created: str, **metadata: Any) -> Pod:
    body = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "resourceVersion": str(version),
            "creationTimestamp": created,
            "labels": {"ray.io/node-type": "head"},
            **metadata,
        }
    }
    return msgspec.convert(body, Pod)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The kubelet reports the end of the old pod's containers after the new pod runs.
        (
            a_head("old", 9, "2026-01-01T11:00:00Z", deletionTimestamp="2026-01-01T12:00:00Z"),
            a_head("new", 8, "2026-01-01T11:59:00Z"),
        ),
        (a_head("old", 9, "2026-01-01T11:00:00Z"), a_head("new", 8, "2026-01-01T11:59:00Z")),
    ],
)
def test_the_head_is_the_pod_that_was_created_last(old: Pod, new: Pod) -> None:
    for pods in ((old, new), (new, old)):
        observed = Observed(job=a_ray_job(), config=Config(), now=NOW, pods=pods)
        assert observed.head_pod is new
        assert observed.head_identity == "new/0"


def test_a_head_in_deletion_counts_while_there_is_no_other() -> None:
    old = a_head("old", 9, "2026-01-01T11:00:00Z", deletionTimestamp="2026-01-01T12:00:00Z")
    assert Observed(job=a_ray_job(), config=Config(), now=NOW, pods=(old,)).head_pod is old
