"""Services with faults on purpose: the rules and laws of the simulation must report them."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from common.ray import submit
from common.ray.view import ServeView
from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from traffic_manager import options
from traffic_manager.migration.state import ClusterState
from traffic_manager.observed import Observed
from traffic_manager.status import health


def gullible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a weight move onto capacity that no service has observed."""
    honest = health.build_state

    def build_state(*args: Any, **kwargs: Any) -> ClusterState:
        found = honest(*args, **kwargs)
        return msgspec.structs.replace(found, proven=found.capacity)

    monkeypatch.setattr(health, "build_state", build_state)


def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both clusters have more than the user allows."""
    honest = options.policy

    def policy(observed: Observed, direction: Direction) -> Policy:
        return msgspec.structs.replace(honest(observed, direction), surge=90)

    monkeypatch.setattr(options, "policy", policy)


def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the active cluster have the new Serve config at once."""
    honest = submit.decide

    def decide(view: ServeView, goal: str, *, frozen: bool, now: datetime) -> str | None:
        return honest(view, goal, frozen=frozen and False, now=now)

    monkeypatch.setattr(submit, "decide", decide)
