"""Each rule of `make hostile` is broken by what it forbids, and by nothing else."""

from typing import Any

import msgspec
import pytest

from hostile import verdict
from hostile.verdict import Figures, Reaction, Service
from support.audit_log import ACCOUNT, Line, Reference, User

SOUND = Service(name="watcher", restarts=0, late=0, peak_mib=100.0, faults=0)


def a_reaction(beside: float, *, control: float = 1.0, count: int = 2 * verdict.ENOUGH) -> Reaction:
    """Return reactions of one length in calm, in the control and beside hostile tenants; so many of the last."""
    many = 2 * verdict.ENOUGH
    taken = {
        verdict.CALM: [0.6] * many,
        verdict.CONTROL: [control] * many,
        verdict.BESIDE: [beside] * count,
    }
    return Reaction(change="its RayCluster is scaled", taken=taken)


FIGURES = Figures(
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
    assert FIGURES.broken == []
    assert verdict.table(FIGURES).row_count > 0


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"services": [msgspec.structs.replace(SOUND, restarts=1)]}, "watcher restarted 1 times"),
        ({"services": [msgspec.structs.replace(SOUND, faults=2)]}, "watcher met 2 bugs of ours"),
        (
            {"services": [msgspec.structs.replace(SOUND, peak_mib=1025.0)]},
            "watcher took 1025 MiB, more than 1024",
        ),
        (
            {"services": [msgspec.structs.replace(SOUND, late=1)]},
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
    (broken,) = msgspec.structs.replace(FIGURES, **change).broken
    assert rule in broken


def test_lag_and_reactions_are_not_judged_where_other_work_takes_the_processors() -> None:
    late = msgspec.structs.replace(
        FIGURES,
        services=[msgspec.structs.replace(SOUND, late=9)],
        reactions=[a_reaction(9.0, count=1)],
        is_timed=False,
    )
    assert late.broken == []


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


@pytest.mark.parametrize(
    ("line", "is_outside"),
    [
        pytest.param(
            a_line("tenant-0", "anything"), False, id="what stands in a tenant's own namespace"
        ),
        pytest.param(
            a_line("victim", "upgraded-x7k2p"), False, id="what the victim's object asks for"
        ),
        pytest.param(a_line("victim", verb="list"), False, id="a list for the victim's object"),
        pytest.param(a_line("victim", "token"), True, id="what no object of the victim asks for"),
        pytest.param(
            a_line("tenant-b", "prod-ray"), True, id="a namespace that nobody's object is in"
        ),
        pytest.param(
            a_line("kube-system", verb="list"), True, id="a list where nobody's object is"
        ),
        pytest.param(a_line("raybus", "lease"), False, id="the services' own Leases"),
        pytest.param(
            a_line("infra", "shared", what="gateways"), False, id="a Gateway on which a route hangs"
        ),
        pytest.param(
            a_line("infra", "shared", what="gateways", verb="patch"), True, id="a change of it"
        ),
        pytest.param(
            a_line("kube-system", "kube-system", what="namespaces"),
            False,
            id="which cluster this is",
        ),
        pytest.param(a_line(""), False, id="a watch of all namespaces"),
        pytest.param(
            a_line("tenant-b", "prod-ray", user="admin"), False, id="somebody else's request"
        ),
    ],
)
def test_a_request_is_judged_by_the_owner_of_the_existing_object(
    line: Line, *, is_outside: bool
) -> None:
    assert list(verdict.outside([line], OWNERS)) == ([line] if is_outside else [])


def test_the_slowest_hundredth_decides() -> None:
    assert verdict.p99([0.1] * 99 + [5.0]) == 5.0
    assert verdict.p99([0.1] * 199 + [5.0]) == 0.1
