"""Ray Serve's heads with the traffic that they get: replicas scale with it where the application is autoscaled."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from common.api.opaque import Json
from common.clock import Clock
from common.ray.dashboard import Target
from scenario.simulation.draws import World
from scenario.simulation.gate_sources import Count
from scenario.simulation.ray import ModelHead, ModelServe, Slowness
from support.builders.ray_service import a_serve_config

PLAIN: Final = World()
PORT: Final = PLAIN.port
DEMAND: Final = 20
"""Replicas that all of the traffic needs."""
LEAST: Final = 1
MOST: Final = 40
"""`min_replicas` and `max_replicas` of an autoscaled deployment."""
DOWN: Final = 30.0
"""Seconds until Serve removes replicas that are not needed."""
AUTOSCALED: Final = (
    "  deployments:\n  - name: Model\n    autoscaling_config:\n"
    f"      min_replicas: {LEAST}\n      max_replicas: {MOST}\n"
)


STRAY: Final = "stray"
"""Name of an application that no config contains."""
GOES: Final = 4.0
"""Seconds for which Serve still lists an application that was removed from the config."""


def a_config(
    message: str, *, is_autoscaled: bool, applications: int = 0, world: World = PLAIN
) -> str:
    """Return a Serve config as a user writes it."""
    first = a_serve_config(message=message) + (AUTOSCALED if is_autoscaled else "")
    more = [
        f"- name: more{number}\n  import_path: more:app\n  route_prefix: /more{number}\n"
        for number in range(applications)
    ]
    options = [
        *(
            [f"proxy_location: {world.proxy_location}\n"]
            if world.proxy_location != "EveryNode"
            else []
        ),
        *([f"http_options: {{port: {world.port}}}\n"] if world.port != PORT else []),
    ]
    return "".join([*options, first, *more])


class ElasticHead(ModelHead):
    """One cluster's Serve controller."""

    share = 0
    """Percent of the traffic that the cluster gets."""
    flaps = 0.0
    """Seconds for which its replicas run and then stop, in turn; 0 if they run permanently."""
    ongoing_until = 0.0
    answered_well = 0.0
    """Requests that the cluster answered while none failed."""
    shown = Count()
    """Request counts that its nodes last exported."""
    lookback = 0.75
    """Seconds for which a process may still act on an answer."""
    is_empty_when_unhealthy = False
    """Whether an application with a stuck status has no replicas."""
    _surplus_since: float | None = None

    silent_until: float | None = None
    """Time at which a hanging dashboard answers again."""

    def __init__(self, clock: Clock, slowness: Slowness) -> None:
        super().__init__(clock, slowness)
        self._ran: list[tuple[float, int]] = []
        """Times of the answers, with the running replicas in each."""
        self.stuck: dict[str, str] = {}
        """Applications with a status that does not change, declared or not."""
        self._going: dict[str, float] = {}
        """Applications that left the config, with the time at which Serve no longer lists them."""

    @property
    def is_autoscaled(self) -> bool:
        config: Json = self.puts[-1] if self.puts else {}
        return any("deployments" in app for app in config.get("applications", []))

    @property
    def has_forgotten(self) -> bool:
        """Return whether the cluster lost its applications together with its head."""
        return self._forgotten

    @property
    def carries(self) -> int:
        """Return the percent of the traffic that its replicas can carry."""
        if not self.puts or self._forgotten or self.app_state is not None:
            return 0
        running = self._running()
        if self.is_autoscaled:
            return min(100, 100 * running // DEMAND)
        target, wanted = self.target, self._wanted()
        return target * min(running, wanted) // wanted if wanted else 0

    @property
    def seen_ready(self) -> int:
        """Return the highest ready capacity that the cluster reported lately."""
        return self._most_of(self.answers)

    @property
    def follows(self) -> int:
        """Return the most traffic that the lately reported replicas can follow: one more, or a
        quarter more.
        """
        ran = self._most_of(self._ran)
        return min(100, int(max(ran + 1, ran * 5 / 4) * 100 / DEMAND))

    @property
    def target(self) -> int:
        """Return the last target capacity that the cluster was given."""
        capacity = self.puts[-1].get("target_capacity") if self.puts else None
        return 100 if capacity is None else int(capacity)

    def move_on(self) -> None:
        """Follow the traffic."""
        if self.silent_until is not None and self.now >= self.silent_until:
            self.behaviour, self.silent_until = "ok", None
        if self.flaps:
            self.most_replicas = 0 if int(self.now / self.flaps) % 2 else DEMAND
        if not self.puts or self._forgotten or not self.is_autoscaled:
            return
        wanted = self._wanted()
        if wanted > len(self._runs_from):
            self._start(wanted - len(self._runs_from))
        if wanted >= len(self._runs_from):
            self._surplus_since = None
        elif self._surplus_since is None:
            self._surplus_since = self.now
        elif self.now - self._surplus_since >= DOWN:
            self._runs_from = sorted(self._runs_from)[:wanted]

    def details(self) -> Json:
        answer = super().details()
        self._ran.append((self.now, self._running()))
        return answer

    def _list_others(self, answer: Json) -> None:
        if not self.puts or self._forgotten:
            return
        self._going = {name: until for name, until in self._going.items() if until > self.now}
        listed: Json = answer["applications"]
        for name, state in (dict.fromkeys(self._going, "DELETING") | self.stuck).items():
            is_declared = name in self._named()
            if is_declared or name in self._going or name.startswith(STRAY):
                config = listed.get(name, {}).get("deployed_app_config")
                listed[name] = _idle(state) | {"deployed_app_config": config}

    def deploy(self, config: Json) -> None:
        kept = list(self._runs_from)
        before = set(self._named())
        super().deploy(config)
        self._going |= dict.fromkeys(before - set(self._named()), self.now + GOES)
        if self.is_autoscaled:
            upper = self._scaled(MOST)
            self._runs_from = sorted(kept)[:upper]
            self._start(max(0, self._wanted() - len(self._runs_from)))

    @property
    def lacking(self) -> list[str]:
        """Return the declared applications that do not run."""
        return [name for name in self._named() if name in self.stuck]

    def _named(self) -> list[str]:
        """Return the applications of the config."""
        config: Json = self.puts[-1] if self.puts else {"applications": []}
        return [each["name"] for each in config["applications"]]

    def _wanted(self) -> int:
        if not self.is_autoscaled:
            return self._scaled(DEMAND)
        needed = math.ceil(DEMAND * self.share / 100)
        return max(self._scaled(LEAST), min(self._scaled(MOST), needed))

    def _scaled(self, count: int) -> int:
        return 0 if self.target == 0 else max(1, math.floor(count * self.target / 100 + 0.5))

    def _app(self, app: Json, done: bool, capacity: float | None) -> Json:
        answer = super()._app(app, done, capacity)
        for deployment in answer["deployments"].values():
            deployment["target_num_replicas"] = self._wanted()
            if self.is_autoscaled:
                deployment["deployment_config"] = {
                    "autoscaling_config": {"min_replicas": LEAST, "max_replicas": MOST}
                }
            if self.app_state is not None and self.is_empty_when_unhealthy:
                deployment["replicas"] = []
        return answer

    def _ready(self, answer: Json) -> int:
        named = set(self._named()) - set(self.stuck)
        apps: list[Any] = [each for name, each in answer["applications"].items() if name in named]
        if not apps or any(app["status"] != "RUNNING" for app in apps):
            return 0
        wanted = self._wanted()
        return self.target * min(self._running(), wanted) // wanted if wanted else 0

    def _most_of(self, answers: list[tuple[float, int]]) -> int:
        """Return the largest of the recent answers, and forget the others."""
        while len(answers) > 1 and self.now - answers[0][0] > self.lookback:
            del answers[0]
        return max((value for at, value in answers if self.now - at <= self.lookback), default=0)


class ElasticServe(ModelServe):
    """The heads of all clusters."""

    lookback = 0.75
    is_empty_when_unhealthy = False

    def __init__(self, clock: Clock, slowness: Slowness) -> None:
        super().__init__(clock, slowness)
        self.warmed = Counter[tuple[str, str]]()
        """Answered warm-up requests, by cluster and its Serve config."""
        self.deployed: Callable[[str], str] = lambda _: ""

    def _of_application(self, pod: Target, path: str) -> bytes:
        answer, cluster = super()._of_application(pod, path), pod.name.rpartition("-")[0]
        self.warmed[cluster, self.deployed(cluster)] += 1
        return answer

    def head(self, service: str) -> ElasticHead:
        if service not in self.models:
            self.models[service] = self.heads[service] = ElasticHead(
                self._clock_of_model, self._slowness
            )
        found = self.models[service]
        assert isinstance(found, ElasticHead)
        found.lookback = self.lookback
        found.is_empty_when_unhealthy = self.is_empty_when_unhealthy
        return found


def _idle(state: str) -> Json:
    """Return an application without replicas, as Serve reports it."""
    target = 0 if state == "DELETING" else 1
    deployment: Json = {
        "status": "UPDATING" if state in {"DEPLOYING", "DELETING"} else "UNHEALTHY",
        "message": "",
        "target_num_replicas": target,
        "replicas": [],
    }
    is_refused = state in {"DEPLOY_FAILED", "NOT_STARTED"}
    return {
        "status": state,
        "message": "",
        "deployments": {} if is_refused else {"Model": deployment},
    }
