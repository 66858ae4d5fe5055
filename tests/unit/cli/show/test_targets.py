"""The arguments after `raybus get` mean what they mean to kubectl."""

import pytest

from common import errors
from raybus_cli.reading.kinds import CLUSTER, SERVICE, Target
from raybus_cli.show import cli
from raybus_cli.show.cli import Targets

DEMO = Target(SERVICE, "demo")
BLUE = Target(CLUSTER, "blue")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("rayservices", Targets(tables=(SERVICE,))),
        ("rayservice", Targets(tables=(SERVICE,))),
        ("RayClusters.ray.io", Targets(tables=(CLUSTER,))),
        ("rayclusters.v1.ray.io", Targets(tables=(CLUSTER,))),
        ("rayservices,rayclusters", Targets(tables=(SERVICE, CLUSTER))),
        ("all", Targets(tables=(SERVICE, CLUSTER))),
        ("rayservice demo", Targets(objects=(DEMO,))),
        ("rayservices demo other demo", Targets(objects=(DEMO, Target(SERVICE, "other")))),
        ("rayservice/demo raycluster/blue", Targets(objects=(DEMO, BLUE))),
        ("rayservice.ray.io/demo", Targets(objects=(DEMO,))),
    ],
)
def test_forms_of_kubectl(arguments: str, found: Targets) -> None:
    assert cli.parse(arguments.split()) == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param("pods", "for other kinds use 'kubectl get'", id="another kind"),
        pytest.param(
            "rs demo",
            "'rs' is neither rayservice nor raycluster",
            id="the short name of ReplicaSets",
        ),
        pytest.param("rayservcie", "did you mean 'rayservice'?", id="a slip"),
        pytest.param("rayservices.apps", "is neither", id="another group"),
        pytest.param("rayservice/", "is not KIND/NAME", id="no name"),
        pytest.param("rayservice/a b", "'b' is not KIND/NAME", id="a name without a kind"),
        pytest.param("rayservice a raycluster/b", "names its kind already", id="a kind twice"),
    ],
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
