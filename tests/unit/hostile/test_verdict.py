"""Each rule of `make hostile` is broken by what it forbids, and by nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace

from hostile import verdict
from hostile.verdict import RunFigures, VictimReaction, VictimService
from support.audit_log import ACCOUNT, Line, Reference, User
from support.tables import cases

SOUND = VictimService(name="watcher", restarts=0, loop_blockages=0, peak_mib=100.0, faults=0)


def a_reaction(
    beside: float, *, control: float = 1.0, count: int = 2 * verdict.MIN_REACTIONS
) -> VictimReaction:
    """Return equal reaction times in calm and in the control run, and `count` of them beside
    hostile tenants.
    """
    many = 2 * verdict.MIN_REACTIONS
    taken = {
        verdict.CALM: [0.6] * many,
        verdict.CONTROL: [control] * many,
        verdict.UNDER_ATTACK: [beside] * count,
    }
    return VictimReaction(change="its RayCluster is scaled", taken=taken)


FIGURES = RunFigures(
    seed=1,
    attacks=10,
    refused=3,
    stored=7,
    seconds=10.0,
    unexplained=[],
    outside=[],
    requests=100,
    services=[SOUND],
    reactions=[a_reaction(1.1)],
)


def test_a_run_in_which_nothing_happened_breaks_no_rule() -> None:
    assert FIGURES.violations == []
    assert verdict.table(FIGURES).row_count > 0


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"services": [replace(SOUND, restarts=1)]}, "watcher restarted 1 times"),
        ({"services": [replace(SOUND, faults=2)]}, "watcher met 2 bugs of ours"),
        ({"services": [replace(SOUND, peak_mib=1025.0)]}, "watcher took 1025 MiB, more than 1024"),
        (
            {"services": [replace(SOUND, loop_blockages=1)]},
            "watcher: its event loop was blocked 1 times",
        ),
        ({"reactions": [a_reaction(1.3)]}, "p99 is 2.2 times the calm one"),
        ({"reactions": [a_reaction(1.1, count=199)]}, "199 reactions (beside), a p99 needs 200"),
        ({"unexplained": ["RayCluster tenant-0/h1: x"]}, "no reason: RayCluster tenant-0/h1: x"),
        ({"crossed": ["a tenant reads a key"]}, "a border is crossed: a tenant reads a key"),
        (
            {"outside": ["watcher: get /api/v1/x"]},
            "accessed outside its namespace: watcher: get /api/v1/x",
        ),
        ({"requests": 0}, "the audit log has no request"),
    ],
)
def test_each_rule_is_broken_by_what_it_forbids(change: dict[str, Any], rule: str) -> None:
    (violations,) = replace(FIGURES, **change).violations
    assert rule in violations


def test_lag_and_reactions_are_not_judged_where_other_work_takes_the_processors() -> None:
    late = replace(
        FIGURES,
        services=[replace(SOUND, loop_blockages=9)],
        reactions=[a_reaction(9.0, count=1)],
        is_timed=False,
    )
    assert late.violations == []


OWNERS = {"victim": ("scaled", "upgraded"), "tenant-0": None}


def a_line(
    namespace: str,
    name: str = "",
    *,
    verb: str = "get",
    what: str = "secrets",
    user: str = f"{ACCOUNT}watcher",
) -> Line:
    return Line(verb=verb, user=User(user), object_ref=Reference(namespace, what, name))


@cases(
    ("line", "is_outside"),
    {
        "what stands in a tenant's own namespace": (a_line("tenant-0", "anything"), False),
        "what the victim's object asks for": (a_line("victim", "upgraded-x7k2p"), False),
        "a list for the victim's object": (a_line("victim", verb="list"), False),
        "what no object of the victim asks for": (a_line("victim", "token"), True),
        "a namespace that nobody's object is in": (a_line("tenant-b", "prod-ray"), True),
        "a list where nobody's object is": (a_line("kube-system", verb="list"), True),
        "the services' own Leases": (a_line("raybus", "lease"), False),
        "a Gateway on which a route hangs": (a_line("infra", "shared", what="gateways"), False),
        "a change of it": (a_line("infra", "shared", what="gateways", verb="patch"), True),
        "which cluster this is": (a_line("kube-system", "kube-system", what="namespaces"), False),
        "a watch of all namespaces": (a_line(""), False),
        "somebody else's request": (a_line("tenant-b", "prod-ray", user="admin"), False),
    },
)
def test_a_request_is_judged_by_the_owner_of_the_existing_object(
    line: Line, *, is_outside: bool
) -> None:
    assert list(verdict.outside([line], OWNERS)) == ([line] if is_outside else [])


def test_the_slowest_hundredth_decides() -> None:
    assert verdict.p99([0.1] * 99 + [5.0]) == 5.0
    assert verdict.p99([0.1] * 199 + [5.0]) == 0.1
