"""The actions of the services that would affect users, and those that only leave a note."""

import pytest

from cluster_reconciler.actions import ClusterPlan, make_step
from common.kube.resources import HTTP_ROUTE, POD, RAY_CLUSTER, SERVICE
from common.ray.revision import RecordedConfig
from common.ray.submit import Submit
from common.runtime.actions import (
    Action,
    Annotate,
    Create,
    EmitEvent,
    Patch,
    Refuse,
    SetFinalizers,
    normal,
    warning,
)
from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import ActionContext
from support.builders.ray_cluster import a_ray_cluster
from support.tables import cases

MARKED = Patch(
    resource=RAY_CLUSTER,
    name="c",
    patch={"metadata": {"resourceVersion": "7", "annotations": {"raybus.io/delete-after": "x"}}},
)
SWITCHED = Patch(
    resource=SERVICE, name="s", patch={"metadata": {}, "spec": {"selector": {"a": "b"}}}
)
GROWN = Patch(resource=RAY_CLUSTER, name="c", patch={"spec": {"workerGroupSpecs": []}})
LABELLED = Patch(resource=POD, name="p", patch={"metadata": {"labels": {"ray.io/serve": "true"}}})
WEIGHED = Patch(resource=HTTP_ROUTE, name="r", patch={"spec": {"rules": []}})
MADE = Create(resource=RAY_CLUSTER, body={"metadata": {"name": "new"}})
SENT = Submit(
    cluster=a_ray_cluster(),
    given=RecordedConfig(serve_config="x", spec_hash="", upgrade_strategy={}),
)


def judged(action: Action, *, moves: bool = False, is_held: bool = False) -> list[tuple[str, str]]:
    context = ActionContext(moves=moves, remedy="do it", is_held=lambda _: is_held)
    return [
        (each.level.value, each.remedy)
        for each in findings.judge_service_actions([action], context)
    ]


@cases(
    ("action", "expected"),
    {
        "annotations alone": (MARKED, "note"),
        "a selector": (SWITCHED, "change"),
        "worker groups": (GROWN, "change"),
        "a label by which requests come": (LABELLED, "change"),
        "weights": (WEIGHED, "change"),
        "a new cluster": (MADE, "change"),
        "another config": (SENT, "change"),
        "an annotation of the service": (Annotate(name="n", value="v"), "note"),
        "a finalizer": (SetFinalizers(finalizers=("f",)), "note"),
        "a finalizer with the spec": (
            SetFinalizers(finalizers=("f",), spec={"rayClusterConfig": {"a": 1}}),
            "change",
        ),
        "a Warning": (EmitEvent(event=warning("R", "A", "n")), "note"),
    },
)
def test_what_an_action_means_at_rest(action: Action, expected: str) -> None:
    assert judged(action) == [(expected, "do it" if expected == "change" else "")]


def test_an_unnoticed_change_is_not_printed() -> None:
    assert judged(EmitEvent(event=normal("R", "A", "n"))) == []


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        pytest.param(SWITCHED, "note", id="the switch"),
        pytest.param(WEIGHED, "note", id="the next weights"),
        pytest.param(SENT, "note", id="the config of the new cluster"),
        pytest.param(MADE, "change", id="a third cluster"),
        pytest.param(GROWN, "change", id="worker groups"),
    ],
)
def test_the_next_step_of_an_upgrade_is_no_change(action: Action, expected: str) -> None:
    assert [level for level, _ in judged(action, moves=True)] == [expected]


def test_a_config_that_serve_has_already_is_a_note() -> None:
    assert judged(SENT, is_held=True) == [("note", "")]


def test_nothing_counts_that_comes_after_a_refusal() -> None:
    refused = make_step(Refuse(event=warning("R", "A", "no account")))
    pod = make_step(Create(resource=POD, body={"metadata": {"name": "p"}}))
    found = findings.judge_cluster_plan(ClusterPlan(actions=(*refused, *pod)), "do it")
    assert [each.level.value for each in found] == ["note"]
    assert [
        each.text for each in findings.judge_cluster_plan(ClusterPlan(actions=pod), "do it")
    ] == ["raybus would create Pod p"]


def test_a_wait_is_printed() -> None:
    found = findings.judge_cluster_plan(ClusterPlan(problem="no queue"), "do it")
    assert [(each.level.value, each.text) for each in found] == [
        ("change", "raybus would wait: no queue")
    ]
