"""The arguments after `raybus get` have the same meaning as for kubectl."""

import pytest

from common import errors
from raybus_cli.reading.kinds import CLUSTER, KINDS, SERVICE, NamedTarget
from raybus_cli.show import cli
from raybus_cli.show.cli import SelectedTargets
from support.tables import cases

DEMO = NamedTarget(SERVICE, "demo")
BLUE = NamedTarget(CLUSTER, "blue")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("rayservices", SelectedTargets(tables=(SERVICE,))),
        ("rayservice", SelectedTargets(tables=(SERVICE,))),
        ("RayClusters.ray.io", SelectedTargets(tables=(CLUSTER,))),
        ("rayclusters.v1.ray.io", SelectedTargets(tables=(CLUSTER,))),
        ("rayservices,rayclusters", SelectedTargets(tables=(SERVICE, CLUSTER))),
        ("all", SelectedTargets(tables=KINDS)),
        ("rayservice demo", SelectedTargets(objects=(DEMO,))),
        (
            "rayservices demo other demo",
            SelectedTargets(objects=(DEMO, NamedTarget(SERVICE, "other"))),
        ),
        ("rayservice/demo raycluster/blue", SelectedTargets(objects=(DEMO, BLUE))),
        ("rayservice.ray.io/demo", SelectedTargets(objects=(DEMO,))),
    ],
)
def test_forms_of_kubectl(arguments: str, found: SelectedTargets) -> None:
    assert cli.parse(arguments.split()) == found


@cases(
    ("arguments", "message"),
    {
        "another kind": ("pods", "for other kinds use 'kubectl get'"),
        "the short name of ReplicaSets": (
            "rs demo",
            "'rs' is none of rayservice, raycluster, rayjob, raycronjob",
        ),
        "a slip": ("rayservcie", "did you mean 'rayservice'?"),
        "another group": ("rayservices.apps", "is none of"),
        "no name": ("rayservice/", "is not KIND/NAME"),
        "a name without a kind": ("rayservice/a b", "'b' is not KIND/NAME"),
        "a kind twice": ("rayservice a raycluster/b", "names its kind already"),
    },
)
def test_other_forms_are_refused_with_the_remedy(arguments: str, message: str) -> None:
    with pytest.raises(errors.InvalidSpec, match=message.replace("?", r"\?")):
        cli.parse(arguments.split())


@pytest.mark.parametrize(
    ("all_namespaces", "selector", "option"),
    [pytest.param(True, "", "-A", id="-A"), pytest.param(False, "a=b", "-l", id="-l")],
)
def test_a_name_excludes_what_selects_several(
    all_namespaces: bool, selector: str, option: str
) -> None:
    with pytest.raises(errors.InvalidSpec, match=f"a name and {option} exclude each other"):
        cli.parse(["rayservice", "demo"], all_namespaces=all_namespaces, selector=selector)
