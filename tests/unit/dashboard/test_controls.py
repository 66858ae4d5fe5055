"""The verbs that the page offers, and the results of requests for them."""

from functools import partial
from http import HTTPStatus

import msgspec
import pytest

from common import errors, labels
from common.api import ray_service
from common.kube.resources import RAY_SERVICE
from raybus_cli import session
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.reading.snapshot import Snapshot
from raybus_dashboard import model
from raybus_dashboard.responses import ActionRequest, Actor
from support.builders.snapshots import NOW, UPGRADING, a_condition, a_service, in_steps
from support.fakes.kube import FakeKube
from support.fakes.kube import Request as KubeRequest

PAUSED = a_condition("UpgradePaused", reason="PauseRequested", message="Paused by raybus.io/pause.")


def _verbs(snapshot: Snapshot) -> list[str]:
    return [each.verb for each in model.list_available_actions(snapshot, now=NOW)]


def test_an_upgrade_can_be_paused_promoted_and_aborted() -> None:
    assert [each for each in _verbs(in_steps(weight=30)) if each != "undo"] == [
        "pause",
        "promote",
        "abort",
    ]


def test_a_paused_upgrade_can_be_resumed() -> None:
    paused = in_steps(UPGRADING, PAUSED)
    paused.service.metadata.annotations[labels.PAUSE] = "true"
    verbs = _verbs(paused)
    assert ("resume" in verbs, "pause" in verbs) == (True, False)


def test_a_service_of_another_controller_has_no_verb() -> None:
    body = a_service()
    body["spec"]["managedBy"] = "example.com/x"
    assert _verbs(Snapshot(service=ray_service.decode(msgspec.json.encode(body)))) == []


def test_a_verb_names_its_effect_and_its_command() -> None:
    [abort] = [
        each
        for each in model.list_available_actions(in_steps(weight=30), now=NOW)
        if each.verb == "abort"
    ]
    assert abort.command == "raybus abort demo -n default"
    assert abort.effect.startswith("The upgrade is aborted: generation ")


# --- what becomes of a request ---------------------------------------------------------------------------------------


class _Kube(FakeKube):
    async def close(self) -> None:
        """Do nothing, since there is no connection."""


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> _Kube:
    found = _Kube()
    found.put(RAY_SERVICE, a_service())

    async def connect(_place: object) -> _Kube:
        return found

    monkeypatch.setattr(session, "connect", connect)
    return found


def _generation(kube: FakeKube) -> int:
    return kube.objects["RayService", "default", "demo"]["metadata"]["generation"]


def _annotations(kube: FakeKube) -> dict[str, str]:
    return kube.objects["RayService", "default", "demo"]["metadata"].get("annotations", {})


async def test_a_verb_is_performed(kube: _Kube) -> None:
    actor = Actor(partial(session.connect, KubeAccess(kubeconfig=None)))
    answer = await actor.perform(
        ActionRequest(service="default/demo", verb="pause", generation=_generation(kube))
    )
    assert (answer.status, answer.text.split(":")[0]) == (HTTPStatus.OK, "demo paused")
    assert _annotations(kube)[labels.PAUSE] == "true"


async def test_a_service_that_was_changed_since_is_left_alone(kube: _Kube) -> None:
    actor = Actor(partial(session.connect, KubeAccess(kubeconfig=None)))
    answer = await actor.perform(
        ActionRequest(service="default/demo", verb="pause", generation=_generation(kube) + 1)
    )
    assert answer.status == HTTPStatus.CONFLICT
    assert labels.PAUSE not in _annotations(kube)


async def test_a_verb_that_has_nothing_to_act_on_gives_the_reason(kube: _Kube) -> None:
    actor = Actor(partial(session.connect, KubeAccess(kubeconfig=None)))
    answer = await actor.perform(
        ActionRequest(service="default/demo", verb="abort", generation=_generation(kube))
    )
    assert answer.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "no upgrade to abort" in answer.text


async def test_a_user_without_the_right_gets_the_reason(kube: _Kube) -> None:
    kube.faults.append(
        lambda request: errors.Forbidden("cannot patch") if request.verb == "patch" else None
    )
    actor = Actor(partial(session.connect, KubeAccess(kubeconfig=None)))
    answer = await actor.perform(
        ActionRequest(service="default/demo", verb="pause", generation=_generation(kube))
    )
    assert (answer.status, "cannot patch" in answer.text) == (HTTPStatus.UNPROCESSABLE_ENTITY, True)


async def test_an_unknown_verb_is_refused(kube: _Kube) -> None:
    actor = Actor(partial(session.connect, KubeAccess(kubeconfig=None)))
    answer = await actor.perform(
        ActionRequest(service="default/demo", verb="delete", generation=_generation(kube))
    )
    assert (answer.status, kube.requests) == (HTTPStatus.BAD_REQUEST, [])


async def test_a_change_that_comes_between_is_left_alone(kube: _Kube) -> None:
    seen = _generation(kube)

    def change(request: KubeRequest) -> None:
        if request.verb == "get" and _generation(kube) == seen:
            kube.objects["RayService", "default", "demo"]["metadata"]["generation"] += 1

    kube.faults.append(change)
    answer = await Actor(partial(session.connect, KubeAccess(kubeconfig=None))).perform(
        ActionRequest(service="default/demo", verb="pause", generation=seen)
    )
    assert answer.status == HTTPStatus.CONFLICT
    assert labels.PAUSE not in _annotations(kube)
    assert [str(each) for each in kube.requests] == ["get RayService demo"]
