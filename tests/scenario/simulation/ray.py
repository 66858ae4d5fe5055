"""Heads with replicas that follow `target_capacity` one by one, as nodes become available.

This is a model of Serve and of Ray's autoscaler. Running replicas continue through a change of
capacity; new replicas need a node first, and the number of nodes is limited. The answers of a head
are remembered, so that a weight can be compared with what a service could have seen.
"""

import math
import random
from typing import Any

from common.api.opaque import Json
from common.clock import Clock
from support.fakes.serve import FakeHead, FakeServe

REPLICAS = 20
"""Replicas of the only deployment at a capacity of 100."""
LOOKBACK = 0.75
"""Seconds for which a process may still act on an answer."""


class Slowness:
    """Draws how long others take; without `most` everything is as fast as possible."""

    def __init__(self, seed: int, *, most: float) -> None:
        self.rng = random.Random(seed)
        self.most = most

    def draw(self, *, least: float = 0.0) -> float:
        """Return some seconds."""
        return least + self.rng.uniform(0.0, self.most) if self.most else least


class ModelHead(FakeHead):
    """One cluster's Serve controller."""

    def __init__(self, clock: Clock, slowness: Slowness) -> None:
        super().__init__(clock, deploy_seconds=slowness.draw(least=0.5))
        self._clock_of_model = clock
        self._slowness = slowness
        self._runs_from: list[float] = []
        """Start time of each replica."""
        self.most_replicas = REPLICAS
        """Number of replicas for which the nodes have room."""
        self.app_state: str | None = None
        """Status of Serve in which the application is stuck."""
        self.answers: list[tuple[float, int]] = []
        """Times of the answers, with the ready capacity in each."""

    @property
    def now(self) -> float:
        return self._clock_of_model.monotonic()

    @property
    def is_sick(self) -> bool:
        """Return whether a fault keeps the cluster from serving."""
        return self.behaviour != "ok" or self.app_state is not None

    @property
    def seen_ready(self) -> int:
        """Return the highest ready capacity that it reported lately."""
        return max(
            (percent for at, percent in self.answers[-8:] if self.now - at <= LOOKBACK), default=0
        )

    def restart(self) -> None:
        super().restart()
        self._runs_from = []

    def lose(self, count: int) -> None:
        """Let replicas die; the controller starts others."""
        lost = min(count, len(self._runs_from))
        self._runs_from = sorted(self._runs_from)[lost:]
        self._start(lost)

    def deploy(self, config: Json) -> None:
        super().deploy(config)
        wanted = _replicas(config.get("target_capacity"))
        self._runs_from = sorted(self._runs_from)[:wanted]
        self._start(wanted - len(self._runs_from))

    def details(self) -> Json:
        answer = super().details()
        for app in answer["applications"].values():
            if self.app_state is not None:
                app["status"] = self.app_state
        self._list_others(answer)
        self.answers.append((self.now, self._ready(answer)))
        return answer

    def _list_others(self, answer: Json) -> None:
        """Add applications that the config does not have."""

    def _start(self, count: int) -> None:
        self._runs_from += [self.now + self._slowness.draw(least=0.25) for _ in range(count)]

    def _running(self) -> int:
        return min(self.most_replicas, sum(at <= self.now for at in self._runs_from))

    def _app(self, app: Json, done: bool, capacity: float | None) -> Json:
        answer = super()._app(app, done, capacity)
        if answer["status"] == "DEPLOY_FAILED":
            return answer
        wanted, running = _replicas(capacity), self._running()
        replicas: list[Any] = [
            {"state": "RUNNING", "node_id": f"node-{ip}", "node_ip": ip}
            for ip in (self.nodes[index % len(self.nodes)] for index in range(running))
        ]
        # With more than one replica running Serve calls an application RUNNING that is far from its target.
        status = "RUNNING" if done else "DEPLOYING"
        deployment = {
            "status": "HEALTHY",
            "message": "",
            "target_num_replicas": wanted,
            "replicas": replicas,
        }
        return {"status": status, "message": "", "deployments": {"Model": deployment}}

    def _ready(self, answer: Json) -> int:
        apps: list[Json] = list(answer["applications"].values())
        if not apps or any(app["status"] != "RUNNING" for app in apps):
            return 0
        capacity = answer["target_capacity"]
        target = 100 if capacity is None else int(capacity)
        wanted = _replicas(capacity)
        return target * min(self._running(), wanted) // wanted if wanted else 0


class ModelServe(FakeServe):
    """The heads of all clusters."""

    def __init__(self, clock: Clock, slowness: Slowness) -> None:
        super().__init__(clock)
        self._clock_of_model = clock
        self._slowness = slowness
        self.models: dict[str, ModelHead] = {}

    def head(self, service: str) -> ModelHead:
        if service not in self.models:
            self.models[service] = self.heads[service] = ModelHead(
                self._clock_of_model, self._slowness
            )
        return self.models[service]

    def forget(self, service: str) -> None:
        """Remove a head; a later head under its name is another one."""
        self.models.pop(service, None)
        self.heads.pop(service, None)


def _replicas(capacity: float | None) -> int:
    """Return how many replicas Serve wants at a target capacity; any but 0 has one."""
    if capacity is None:
        return REPLICAS
    return 0 if capacity == 0 else max(1, math.floor(REPLICAS * capacity / 100 + 0.5))
