"""The draw of one seed: the user's requests, the events and their times, and outcomes of writes.

Everything is drawn before anything runs, so a draw can be made smaller: `without` leaves a part
out.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from common import labels
from common.api.opaque import Json
from scenario.simulation.boundaries import Fate, Strike
from scenario.simulation.gate_sources import ANSWERS, GATES, Turns
from scenario.simulation.setting import Setting

POLICY: Final = "drawn"
STEPS: Final = "NewClusterWithIncrementalUpgrade"
ANNOTATIONS: Final[dict[str, tuple[str, ...]]] = {
    "raybus.io/max-unavailable-percent": ("0", "20", "50", "99"),
    "raybus.io/progress-deadline": ("20", "120"),
    "raybus.io/on-deadline": ("Rollback", "Pause", "Wait"),
    "raybus.io/graceful-drain": ("true",),
    "raybus.io/drain-timeout": ("5s", "0"),
    "raybus.io/revision-history-limit": ("0", "1"),
    "raybus.io/pause": ("false",),
}


POLICIES: Final[dict[str, tuple[Any, ...]]] = {
    "steps": (
        [{"weight": 1}, {"weight": 10, "hold": "5s"}, {"weight": 100}],
        [{"weight": 33, "hold": "2s"}, {"weight": 34}, {"weight": 100, "hold": "3s"}],
        [{"weight": 50, "hold": "20s"}, {"weight": 100}],
        [{"weight": 100}],
        [{"weight": 5, "pause": {}}, {"weight": 60}, {"weight": 100, "pause": {}}],
    ),
    "gates": (
        [GATES["errors"]],
        [GATES["more errors"]],
        [GATES["webhook"]],
        [GATES["prometheus"]],
        [GATES["errors"], GATES["webhook"], GATES["prometheus"]],
    ),
    "onFailure": ("Rollback", "Pause"),
    "autoPromote": (True, True, False),
    "bake": ("0s", "10s", "40s"),
    "warmUp": ({"requests": 5, "path": "/warm"},),
    "mirror": (
        {"percent": 10, "duration": "8s"},
        {"percent": 100, "duration": "1s", "methods": ["GET", "POST"]},
    ),
    "preview": ({"service": True, "header": {"name": "x-version", "value": "next"}},),
}
"""Fields of an UpgradePolicy, each with the values to draw from."""
POLICY_SECONDS: Final = 120.0
"""Seconds, more than the longest of these policies takes by itself."""


PARENTS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("before",),
    ("after",),
    ("elsewhere",),
    ("elsewhere", "before", "after"),
)
"""The entries of other controllers that a route's `status.parents` may have."""
FOREIGN: Final[dict[str, str]] = {
    "mirror-httproute": "HTTPRoute",
    "preview-httproute": "HTTPRoute",
    "preview-svc": "Service",
    "grpcroute": "GRPCRoute",
    "gateway": "Gateway",
    "httproute": "HTTPRoute",
}
"""Names with our prefix that belong to other owners, with their kinds."""
UNUSED_IN_STEPS: Final = ("mirror-httproute", "preview-httproute", "preview-svc")
"""The foreign names that no upgrade in steps needs."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of the RayService, apart from the upgrade itself."""

    applications: int = 0
    """Number of declared applications besides the first."""
    proxy_location: str = "EveryNode"
    port: int = 8000
    """Port at which the proxies listen; the pods declare it."""
    has_grpc: bool = False
    has_sidecar: bool = False
    """Whether another container comes before Ray's in the pods as they run."""
    parents: tuple[str, ...] = ()
    reports_generations: bool = True
    foreign: tuple[str, ...] = ()
    has_twins: bool = False
    """Whether the user's route has foreign backends with the names of ours."""
    deletion_delay: int = 0
    counts_at: tuple[str, ...] = ("head",)


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Another spec of the UpgradePolicy, some seconds after the upgrade begins."""

    after: float
    spec: Json


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that begins some seconds after a point of the upgrade, and ends."""

    fault: str
    point: str
    after: float = 0.0
    seconds: float | None = None
    """Duration in seconds; None for the duration of the fault itself."""

    def __str__(self) -> str:
        lasts = "" if self.seconds is None else f" for {self.seconds:g} s"
        return f"{self.fault} {self.after:g} s after {self.point}{lasts}"


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated upgrade."""

    seed: int
    setting: Setting = Setting()
    annotations: dict[str, str] = {}
    policy: Json | None = None
    """The spec of the UpgradePolicy that its upgrades follow."""
    edits: tuple[Edit, ...] = ()
    """The edits of the policy, in order."""
    sources: dict[str, Turns] = {}
    """Answers of the sources of gates; a source that is absent accepts every cluster."""
    resumes: float | None = None
    """Seconds after which the user ends a pause of the policy; None if the user never does."""
    has_own_route: bool = False
    has_other_service: bool = False
    is_autoscaled: bool = False
    stops: float = 0.0
    """Probability that a pass stops at a boundary."""
    longest_stop: float = 1.0
    edit_before: float | None = None
    """Seconds before the upgrade at which only the Serve config is changed."""
    strikes: tuple[Strike, ...] = ()
    happenings: tuple[Happening, ...] = ()
    first_kind: str | None = None
    """The strategy before the upgrade, if it differs."""
    starts: float = 1.0
    """Seconds until a new cluster has a ready head."""
    rests: float = 0.0
    """Seconds that pass before the user ends the upgrade."""
    last: str = "green"
    """The version that the user wants in the end."""
    world: World = World()

    def __str__(self) -> str:
        parts = [
            f"seed {self.seed}: {self.setting}",
            *(f"{key}={value}" for key, value in self.annotations.items()),
            *([f"policy {self.policy}"] if self.policy is not None else []),
            *(f"edited after {each.after:g} s: {each.spec}" for each in self.edits),
            *(
                f"{name} {', '.join(each.answers)} of {each.seconds:g} s"
                for name, each in self.sources.items()
            ),
            *([f"pauses end after {self.resumes:g} s"] if self.resumes is not None else []),
            *(["a route of the user"] if self.has_own_route else []),
            *(["another service on it"] if self.has_other_service else []),
            *(["autoscaled"] if self.is_autoscaled else []),
            f"clusters start in {self.starts:g} s",
            f"stops {self.stops:g} up to {self.longest_stop:g} s",
            *(
                [f"Serve config edited {self.edit_before:g} s before"]
                if self.edit_before is not None
                else []
            ),
            *map(str, self.strikes),
            *map(str, self.happenings),
            *([f"strategy before: {self.first_kind}"] if self.first_kind else []),
            f"in the end {self.last}",
            *(f"{field}={value}" for field, value in _drawn(self.world)),
        ]
        return "; ".join(parts)


def _drawn(world: World) -> Iterator[tuple[str, Any]]:
    """Yield the differences from the plain world."""
    for field in world.__struct_fields__:
        value = getattr(world, field)
        if value != getattr(World(), field):
            yield field, value


def of(
    seed: int,
    faults: dict[str, bool],
    points: tuple[str, ...],
    strangers: dict[str, bool],
    waits: tuple[str, ...],
) -> Draw:
    """Return the draw of a seed.

    `faults` and `strangers` contain of each happening whether it needs steps; those of `strangers` begin at `waits`, too.
    """
    plain = in_a_plain_world(seed, faults, points)
    rng, in_steps = random.Random(f"world {seed}"), plain.setting.kind == STEPS
    names = [name for name, needs_steps in strangers.items() if in_steps or not needs_steps]
    held = (*(points if in_steps else (points[:3])), *waits, *waits)
    return msgspec.structs.replace(
        plain,
        world=_world(rng, plain),
        happenings=(*plain.happenings, *_happenings(rng, names, held)),
        last="appended" if rng.random() < 0.08 else plain.last,
    )


def _world(rng: random.Random, plain: Draw) -> World:
    in_steps = plain.setting.kind == STEPS
    foreign = UNUSED_IN_STEPS if in_steps or plain.first_kind == STEPS else tuple(FOREIGN)
    world = World(
        applications=rng.choice([0, 0, 0, 1]),
        proxy_location=rng.choice(["EveryNode"] * 6 + ["Disabled", "HeadOnly"]),
        port=rng.choice([8000] * 7 + [9000]),
        has_grpc=in_steps and rng.random() < 0.12,
        has_sidecar=rng.random() < 0.1,
        parents=rng.choice(PARENTS) if rng.random() < 0.4 else (),
        reports_generations=rng.random() >= 0.1,
        foreign=tuple(each for each in foreign if rng.random() < 0.06),
        has_twins=plain.has_own_route and rng.random() < 0.5,
        deletion_delay=rng.choice([0, 0, 60]),
        counts_at=rng.choice([("head",), ("worker",), ("head", "worker")]),
    )
    if world.proxy_location == "Disabled" and plain.policy is not None:
        world = msgspec.structs.replace(world, proxy_location="EveryNode")  # gates need requests
    if any(each.fault == "gateway asleep" for each in plain.happenings):
        # without generations a Gateway counts as following after 10 s, asleep or not (ADR 43)
        world = msgspec.structs.replace(world, reports_generations=True)
    if world.proxy_location != "EveryNode" or world.port != World().port:
        return msgspec.structs.replace(world, counts_at=("head",))  # no request reaches a worker
    return world


def in_a_plain_world(seed: int, faults: dict[str, bool], points: tuple[str, ...]) -> Draw:
    """Return the draw of a seed without strangers, and with nothing unusual around it."""
    rng = random.Random(f"draw {seed}")
    kind = rng.choice([STEPS] * 8 + ["NewCluster", "NewCluster", "None"])
    setting = _setting(rng, seed, kind)
    in_steps = kind == STEPS
    annotations = {
        name: rng.choice(values) for name, values in ANNOTATIONS.items() if rng.random() < 0.15
    }
    has_route = in_steps and rng.random() < 0.2
    if has_route:
        annotations["raybus.io/http-route"] = "mine"
    policy, edits = _policy(random.Random(f"policy {seed}")), random.Random(f"edits {seed}")
    gates = random.Random(f"gates {seed}")
    if policy is not None:
        annotations[labels.UPGRADE_POLICY] = POLICY
    names = [name for name, needs_steps in faults.items() if in_steps or not needs_steps]
    return Draw(
        seed=seed,
        setting=setting,
        annotations=annotations,
        policy=_with_edits(policy, edits),
        edits=tuple(_edits(edits)) if policy is not None else (),
        sources=_sources(gates) if policy is not None else {},
        resumes=gates.choice([None, 2.0, 15.0, 15.0]) if policy is not None else None,
        has_own_route=has_route or (in_steps and rng.random() < 0.1),
        has_other_service=has_route and rng.random() < 0.5,
        is_autoscaled=rng.random() < 0.15,
        stops=rng.choice([0.0, 0.05, 0.2]),
        longest_stop=rng.choice([0.5, 2.0]),
        edit_before=rng.uniform(0.0, 4.0) if rng.random() < 0.35 else None,
        strikes=tuple(_strikes(rng, in_steps=in_steps)),
        happenings=tuple(_happenings(rng, names, points if in_steps else points[:3])),
        first_kind=rng.choice([STEPS, "NewCluster"]) if rng.random() < 0.15 else None,
        starts=rng.choice([1.0, 1.0, 1.0, 8.0, 90.0]),
        rests=rng.choice([0.0, 0.0, 40.0]),
        last=rng.choice(["green", "green", "blue", "red"]),
    )


def without(draw: Draw) -> Iterator[Draw]:
    """Yield smaller draws."""
    replace = msgspec.structs.replace
    for field in ("happenings", "strikes", "edits"):
        held = getattr(draw, field)
        for index in range(len(held)):
            yield replace(draw, **{field: held[:index] + held[index + 1 :]})
    for field in ("annotations", "policy", "sources"):
        parts: Json = getattr(draw, field) or {}
        for name in parts:
            yield replace(
                draw, **{field: {key: value for key, value in parts.items() if key != name}}
            )
    for field, _ in _drawn(draw.world):
        plain = {field: getattr(World(), field)}
        yield replace(draw, world=msgspec.structs.replace(draw.world, **plain))
    for field, plain in (
        ("edit_before", None),
        ("stops", 0.0),
        ("is_autoscaled", False),
        ("has_other_service", False),
    ):
        if getattr(draw, field) != plain:
            yield replace(draw, **{field: plain})
    if draw.setting.slow:
        yield replace(draw, setting=msgspec.structs.replace(draw.setting, slow=0.0))


def _policy(rng: random.Random) -> Json | None:
    if rng.random() >= 0.4:
        return None
    return {name: rng.choice(values) for name, values in POLICIES.items() if rng.random() < 0.5}


def _sources(rng: random.Random) -> dict[str, Turns]:
    """Return what sources answer that are not always good: most often that and something else in turn."""
    return {
        source: Turns(
            answers=tuple(rng.choices(["good", *answers], k=rng.choice([1, 2, 3, 5]))),
            seconds=rng.choice([2.0, 10.0, 45.0]),
        )
        for source, answers in ANSWERS.items()
        if rng.random() < 0.5
    }


def _with_edits(policy: Json | None, rng: random.Random) -> Json | None:
    """Return a policy of which the edits apply at once, or one without them."""
    return (
        {**policy, "applyEdits": "AtOnce"} if policy is not None and rng.random() < 0.7 else policy
    )


def _edits(rng: random.Random) -> Iterator[Edit]:
    """Yield edits: each another policy, some of them invalid."""
    after = 0.0
    for _ in range(rng.choice([0, 1, 2, 4])):
        after += rng.choice([0.5, 3.0, rng.uniform(0.0, 30.0)])
        spec: Json = {
            name: rng.choice(values) for name, values in POLICIES.items() if rng.random() < 0.5
        }
        spec["applyEdits"] = rng.choice(["AtOnce", "AtOnce", "AtOnce", "NextUpgrade"])
        yield Edit(
            after=round(after, 2),
            spec={**spec, "steps": [{"weight": 7}]} if rng.random() < 0.15 else spec,
        )


def _setting(rng: random.Random, seed: int, kind: str) -> Setting:
    surge = rng.choice([0, 10, 20, 50, 75, 100, 100])
    step = min(surge, rng.choice([0, 1, 5, 10, 25, 25, 50, 100]))
    interval = rng.choice([1, 1, 1, 2, 10, 600])
    if step and 100 / step * interval > 1300:
        interval = 10 if step >= 10 else 1
    return Setting(
        surge=surge,
        step=step,
        interval=interval,
        kind=kind,
        seed=seed,
        slow=rng.choice([0.0, 0.5, 1.0, 2.0]),
    )


def _strikes(rng: random.Random, *, in_steps: bool) -> Iterator[Strike]:
    most = 60 if in_steps else 20
    for write in sorted(rng.sample(range(1, most), k=rng.choice([0, 1, 2, 4]))):
        fate = rng.choice(list(Fate))
        seconds = (
            rng.choice([0.0, 1.0, 3.0, 12.0]) if "STOP" in fate.name else rng.uniform(3.0, 30.0)
        )
        yield Strike(
            write=write, fate=fate, seconds=round(seconds, 2), down=rng.choice([0.0, 1.0, 6.0])
        )


def _happenings(
    rng: random.Random, names: list[str], points: tuple[str, ...]
) -> Iterator[Happening]:
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        yield Happening(
            fault=rng.choice(names),
            point=rng.choice(points),
            after=rng.choice([0.0, 0.0, 0.25, 1.0, rng.uniform(0.0, 20.0)]),
            seconds=rng.choice([None, None, 2.0, 20.0, 90.0]),
        )
