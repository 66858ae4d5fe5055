"""Draws that the simulator once found, each for one fault; it must find the fault if it returns."""

from typing import Final

import msgspec

from common.api.opaque import Json
from scenario.simulation.boundaries import Fate, Strike
from scenario.simulation.draws import POLICY, STEPS, Draw, Edit, Happening, World
from scenario.simulation.gate_sources import GATES, Turns
from scenario.simulation.setting import Setting

FOLLOWS: Final = {"raybus.io/upgrade-policy": POLICY}
BLUE_GREEN: Final = Setting(kind="NewCluster")
UNAVAILABLE: Final = {"raybus.io/max-unavailable-percent": "20"}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, with the draw that shows it."""

    name: str
    draw: Draw
    law: str
    """The law that the fault broke."""


def _happens(
    fault: str, point: str, *, after: float = 0.0, seconds: float | None = None
) -> Happening:
    return Happening(fault=fault, point=point, after=after, seconds=seconds)


def _case(
    name: str, law: str, *happenings: Happening, setting: Setting | None = None, **fields: object
) -> Case:
    draw = Draw(seed=0, setting=setting or Setting(), happenings=happenings)
    return Case(name=name, law=law, draw=msgspec.structs.replace(draw, **fields))


WARM_UP: Final = {"requests": 5, "path": "/warm"}
PAUSED: Final[list[Json]] = [{"weight": 10, "pause": {}}, {"weight": 100}]
SLOW: Final = Setting(surge=50, step=25, interval=10)
CASES: Final = (
    _case("F.1", "hot", _happens("writes of ControllerRevision refused", "named", seconds=30.0)),
    _case(
        "F.2", "frozen", edit_before=1.0, strikes=(Strike(write=3, fate=Fate.DIE_AFTER, down=3.0),)
    ),
    _case(
        "F.3",
        "starved",
        _happens("no step", "half", seconds=200.0),
        _happens("spec reverted", "half", after=2.0),
        setting=Setting(surge=100, step=50, interval=2),
    ),
    _case(
        "F.4",
        "starved",
        _happens("another route named", "begin", seconds=14.0),
        setting=Setting(surge=50, step=25, interval=4),
        has_own_route=True,
    ),
    _case(
        "F.5",
        "foreign",
        has_own_route=True,
        has_other_service=True,
        annotations={"raybus.io/http-route": "mine"},
    ),
    _case(
        "F.7",
        "deleted",
        _happens("spec reverted", "half"),
        _happens("active cluster deleted by hand", "half", after=1.0),
        setting=SLOW,
        starts=90.0,
        rests=100.0,
    ),
    _case(
        "F.8",
        "overload",
        _happens("active pods die", "half", after=1.0, seconds=60.0),
        setting=SLOW,
    ),
    _case(
        "F.9",
        "overload",
        _happens("pending pods die", "half", after=1.0, seconds=200.0),
        setting=Setting(surge=50, step=50, interval=600),
    ),
    _case(
        "F.10",
        "endless",
        _happens("pending flaps", "half", seconds=900.0),
        setting=Setting(surge=20, step=5, interval=10),
        annotations={"raybus.io/progress-deadline": "120", "raybus.io/on-deadline": "Rollback"},
    ),
    _case(
        "F.11", "starved", setting=Setting(surge=75, step=25, interval=5), annotations=UNAVAILABLE
    ),
    _case(
        "F.12",
        "alone",
        _happens("strategy NewCluster for a while", "half", after=0.25, seconds=400.0),
        setting=Setting(surge=0, step=0, interval=5),
        annotations=UNAVAILABLE,
        rests=60.0,
    ),
    _case("F.13", "plain", setting=SLOW, first_kind="NewCluster"),
    _case(
        "F.15, a tie of two writers",
        "version",
        _happens("strategy NewCluster and Serve config edited", "begin", after=1.0),
        edit_before=60.0,
        strikes=(
            Strike(write=2, fate=Fate.STOP_BEFORE, seconds=2.0),
            Strike(write=5, fate=Fate.STOP_BEFORE, seconds=3.0),
        ),
        seed=3,
    ),
    _case(
        "F.15, carried out late",
        "version",
        _happens("Serve config edited", "begin", after=5.0),
        edit_before=60.0,
        strikes=(Strike(write=3, fate=Fate.LATE_DEAD, seconds=20.0),),
    ),
    _case(
        "a capacity carried out late",
        "starved",
        setting=Setting(surge=20, step=5, interval=1),
        strikes=(Strike(write=10, fate=Fate.LATE, seconds=12.0),),
    ),
    _case(
        "an intent without an outcome",
        "version",
        edit_before=3.5,
        strikes=(Strike(write=3, fate=Fate.FAIL),),
        starts=60.0,
        setting=Setting(surge=50, step=25, interval=10),
    ),
    _case(
        "a Serve config reverted with the spec",
        "frozen",
        _happens("spec reverted", "named"),
        setting=Setting(kind="NewCluster"),
        edit_before=2.0,
    ),
    _case("the active cluster flaps", "surge", _happens("active flaps", "begin"), setting=SLOW),
    _case("F.16", "converge", _happens("the receipt refused", "half")),
    _case(
        "F.17",
        "unserved",
        _happens("writes of Gateway refused", "begin", seconds=90.0),
        _happens("gateway deleted by hand", "begin", after=0.5),
        _happens("active head replaced", "begin", after=1.0, seconds=2.0),
        edit_before=80.0,
    ),
    _case(
        "F.19",
        "overload",
        _happens("an invalid edit", "half", after=0.5, seconds=200.0),
        _happens("pending pods die", "half", after=2.0, seconds=150.0),
        setting=SLOW,
    ),
    _case(
        "capacities with lost answers",
        "hot",
        _happens("answers are lost", "configured", seconds=20.0),
        setting=Setting(surge=10, step=10, interval=1, slow=2.0, seed=637),
        edit_before=2.2,
        seed=637,
    ),
    _case(
        "a rollback to a cluster that is sick",
        "hot",
        _happens("active application unhealthy", "named", after=1.0),
        _happens("spec reverted and asked for again", "first capacity", after=0.25, seconds=20.0),
        setting=Setting(surge=20, step=20, interval=1, slow=1.0, seed=776),
        annotations=UNAVAILABLE,
        stops=0.2,
        longest_stop=0.5,
        seed=776,
        last="blue",
    ),
    _case("capacity parity", "parity", is_autoscaled=True),
    _case(
        "capacity parity after a restart at a small weight",
        "converge",
        _happens("traffic is down", "half", after=15.0, seconds=3.0),
        setting=Setting(surge=100, step=47, interval=10),
        is_autoscaled=True,
    ),
    _case(
        "a Serve config edited while an upgrade waits for its user",
        "gated",
        _happens("Serve config edited", "waits", after=3.0),
        setting=BLUE_GREEN,
        annotations=FOLLOWS,
        policy={"gates": [GATES["webhook"]], "autoPromote": False, "warmUp": WARM_UP},
        resumes=10.0,
    ),
    _case(
        "a Serve config edited at a step that its webhook passed",
        "gated",
        _happens("Serve config edited", "first weight", after=1.0),
        setting=Setting(surge=100, step=100),
        annotations=FOLLOWS,
        policy={"gates": [GATES["webhook"]], "steps": PAUSED},
        sources={"webhook": Turns(answers=("good", *["wait"] * 20), seconds=8.0)},
        resumes=12.0,
    ),
    _case(
        "a restart after a failure that pauses an upgrade",
        "failed",
        _happens("service is down", "waits", seconds=8.0),
        setting=BLUE_GREEN,
        annotations=FOLLOWS,
        policy={"gates": [GATES["webhook"]], "onFailure": "Pause"},
        sources={"webhook": Turns(answers=("bad", *["good"] * 40), seconds=6.0)},
    ),
    *(
        _case(
            f"an application of the active cluster that is {state}",
            "leap",
            _happens(f"active has a stray application that is {state}", "first capacity"),
            setting=Setting(surge=50, step=10, interval=2),
        )
        for state in ("DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED")
    ),
    *(
        _case(
            f"an application of the pending cluster that is {state}, which nobody declared",
            "converge",
            _happens(f"pending has a stray application that is {state}", "configured"),
            setting=BLUE_GREEN,
        )
        for state in ("DEPLOY_FAILED", "NOT_STARTED")
    ),
    _case(
        "gates beside an application that nobody declared",
        "converge",
        _happens("pending has a stray application that is DEPLOYING", "named"),
        setting=BLUE_GREEN,
        annotations=FOLLOWS,
        policy={"gates": [GATES["webhook"]]},
    ),
    _case(
        "a warm-up beside an application that nobody declared",
        "gated",
        _happens("pending has a stray application that is DEPLOY_FAILED", "named"),
        annotations=FOLLOWS,
        policy={"warmUp": WARM_UP},
    ),
    _case(
        "series that end after an incident",
        "silence",
        _happens("pending proxies begin anew", "first weight", after=7.0, seconds=12.0),
        setting=Setting(surge=100, step=100),
        annotations=FOLLOWS,
        policy={
            "gates": [GATES["errors"]],
            "steps": [{"weight": 50, "hold": "60s"}, {"weight": 100}],
        },
    ),
    _case(
        "a mirror route at an active cluster that is gone",
        "beside",
        _happens("the bus is silent and the active cluster is deleted", "mirrored", after=1.0),
        setting=Setting(surge=100, step=50, interval=5),
        annotations=FOLLOWS,
        policy={"mirror": {"percent": 100, "duration": "60s", "methods": ["GET"]}},
    ),
    *(
        _case(
            f"dashboards that hang together, the {first} one back first",
            "leap",
            _happens(f"both dashboards hang, {first} answers first", "first weight", after=1.0),
            setting=Setting(surge=25, step=5, interval=10),
        )
        for first in ("pending", "active")
    ),
    _case(
        "a spec reverted while nobody looks, at the end of a bake",
        "plan",
        _happens("both services are down and the spec is reverted", "promoted", after=2.0),
        setting=Setting(surge=100, step=100),
        annotations=FOLLOWS,
        policy={"bake": "40s"},
    ),
    _case(
        "a spec reverted within the delay of deletions",
        "again",
        _happens("spec reverted", "promoted", after=10.0),
        setting=BLUE_GREEN,
        world=World(deletion_delay=60),
    ),
    _case(
        "backends of others with the name of ours",
        "foreign",
        has_own_route=True,
        annotations={"raybus.io/http-route": "mine"},
        world=World(has_twins=True),
    ),
    *(
        _case(
            f"proxies on the head alone, {kind}",
            "converge",
            setting=Setting(kind=kind),
            world=World(proxy_location="HeadOnly"),
        )
        for kind in ("NewCluster", STEPS)
    ),
    *(
        _case(
            f"no proxy at all, {kind}",
            "converge",
            setting=Setting(kind=kind),
            world=World(proxy_location="Disabled"),
        )
        for kind in ("NewCluster", STEPS)
    ),
    _case(
        "a warm-up of a cluster whose workers declare no port",
        "silence",
        setting=BLUE_GREEN,
        annotations=FOLLOWS,
        policy={"warmUp": WARM_UP, "onFailure": "Pause"},
        world=World(port=9000),
    ),
    _case(
        "health checks that a service is too late for, with proxies on the head alone",
        "withdrawn",
        _happens("service is too late for any dashboard", "half", seconds=40.0),
        setting=SLOW,
        world=World(proxy_location="HeadOnly"),
    ),
    _case("a port of the user, and a mesh", "converge", world=World(port=9000, has_sidecar=True)),
    _case(
        "a name without its cluster, and the first spec with a group appended",
        "converge",
        _happens(
            "no cluster may be made, and the spec is the first one with a group appended",
            "named",
            seconds=90.0,
        ),
        setting=BLUE_GREEN,
        last="appended",
    ),
    _case(
        "a suspension beside others' objects",
        "plan",
        _happens("suspended", "begin", after=1.0, seconds=200.0),
        setting=BLUE_GREEN,
        world=World(foreign=("gateway", "httproute", "grpcroute")),
    ),
    *(
        _case(
            f"entries of other controllers, {', '.join(each)}",
            "converge",
            world=World(parents=each),
        )
        for each in (("before",), ("after",), ("elsewhere", "before"))
    ),
    _case(
        "a controller that reports no generation",
        "converge",
        world=World(reports_generations=False),
    ),
    _case(
        "a suspension with an invalid spec",
        "ends",
        _happens("invalid, then suspended", "half", seconds=200.0),
    ),
    _case(
        "a changed spec that the strategy None ignores",
        "named",
        setting=Setting(kind="None"),
        rests=100.0,
    ),
    _case(
        "a mirror that ends in the plan that moves weights",
        "plan",
        _happens("traffic is down", "configured", after=0.25),
        setting=Setting(surge=50, step=50),
        annotations=FOLLOWS,
        policy={"mirror": {"percent": 100, "duration": "1s"}, "applyEdits": "AtOnce"},
        edits=(Edit(after=0.5, spec={"bake": "10s", "applyEdits": "NextUpgrade"}),),
        stops=0.2,
        longest_stop=2.0,
        seed=31,
    ),
    _case(
        "a preview Service with another owner",
        "named",
        setting=Setting(interval=20),
        annotations={**FOLLOWS, "raybus.io/progress-deadline": "60"},
        policy={"preview": {"service": True}},
        world=World(foreign=("preview-svc",)),
    ),
    _case(
        "a silent dashboard of a cluster without proxies",
        "leap",
        _happens("pending dashboard hangs", "half", after=0.25, seconds=20.0),
        setting=Setting(surge=20, step=10, interval=1),
        world=World(proxy_location="Disabled"),
    ),
    _case(
        "a former controller that refused the generation that never changed",
        "converge",
        world=World(parents=("after",), reports_generations=False),
        first_kind="NewCluster",
    ),
    _case(
        "a process that is too late for both dashboards",
        "surge",
        _happens("traffic is too late for any dashboard", "begin", seconds=20.0),
        setting=Setting(surge=20, step=20, interval=1, slow=2.0, seed=713),
        strikes=(Strike(write=23, fate=Fate.LOSE),),
        is_autoscaled=True,
        stops=0.0,
        longest_stop=0.5,
        seed=713,
    ),
    _case(
        "a worker that is not ready for two seconds",
        "surge",
        _happens("active worker is not ready for a moment", "first capacity", seconds=2.0),
        setting=Setting(surge=20, step=20, interval=10),
    ),
)
OPEN: Final = frozenset[str]()
"""Faults that are not fixed yet; a fix removes its entry."""
__all__ = ["CASES", "OPEN", "STEPS"]
