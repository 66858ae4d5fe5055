"""The faults of RayJobs that a run counts."""

from typing import Any

import pytest

from chaos.checker.evidence import EvidenceObject, Meta, ObservedState
from chaos.evidence_room import EvidenceStore
from chaos.faults import DashboardFaults
from chaos.schedule import Fault
from chaos.stack import BACKGROUND
from common import errors

HEAD_LOSS = Fault(at=0.0, kind="head loss", lasts=0.0, over=0.0)


class FakeStack:
    """Implements the part of `Stack` and `Submitters` that a head loss uses."""

    def __init__(self, heads: dict[str, str], error: Exception | None) -> None:
        self._heads = heads
        self._error = error
        self.kube = self

    def heads(self) -> dict[str, str]:
        return self._heads

    async def delete(self, *_target: object) -> None:
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize(
    ("heads", "error", "lost"),
    [
        pytest.param({"train-head": "train"}, None, 1, id="deleted"),
        pytest.param({}, None, 0, id="no driver runs"),
        pytest.param({"train-head": "train"}, errors.RaybusError("gone"), 0, id="refused"),
    ],
)
async def test_a_head_loss_counts_if_a_head_was_deleted(
    heads: dict[str, str], error: Exception | None, lost: int
) -> None:
    room = EvidenceStore(lambda: 0.0)
    cluster = EvidenceObject(metadata=Meta(name="train", namespace=BACKGROUND))
    room.take(ObservedState(kind="RayCluster", version=1, at=0.0, object=cluster))
    stack: Any = FakeStack(heads, error)
    faults = DashboardFaults(stack, room, drivers=stack, submitters=stack)
    await faults.carry_out([HEAD_LOSS], since=0.0)
    assert len(faults.struck) == lost
