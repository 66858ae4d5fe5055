"""Events: what is written, what is not repeated, what may be lost."""

from common import errors
from common.api.event import Event
from common.api.meta import ObjectMeta
from common.kube.events import EventRecorder
from common.kube.resources import RAY_CLUSTER
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

META = ObjectMeta(namespace="default", name="demo", uid="u1", resource_version="7")
CREATED = Event(type="Normal", reason="CreatedHeadPod", action="Create", note="Created head Pod default/demo-head-x")


def a_recorder(kube: FakeKube, clock: FakeClock) -> EventRecorder:
    return EventRecorder(kube, controller="raycluster-controller", instance="raycluster-controller-a", clock=clock)


async def test_an_event_names_its_object_and_controller() -> None:
    kube = FakeKube()
    await a_recorder(kube, FakeClock()).record(RAY_CLUSTER, META, CREATED)
    body = kube.requests[0].body
    assert body["regarding"] == {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "namespace": "default",
        "name": "demo",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert (body["type"], body["reason"], body["action"]) == ("Normal", "CreatedHeadPod", "Create")
    assert body["reportingController"] == "raycluster-controller"
    assert body["metadata"]["name"].startswith("demo.")


async def test_a_repeated_event_is_told_again_only_after_the_quiet_time() -> None:
    kube, clock = FakeKube(), FakeClock()
    recorder = a_recorder(kube, clock)
    for seconds in (0, 10, 300, 400):
        clock.advance(seconds)
        await recorder.record(RAY_CLUSTER, META, CREATED)
    assert len(kube.events()) == 2


async def test_a_long_note_is_cut_to_what_the_api_server_takes() -> None:
    kube = FakeKube()
    long = Event(type="Warning", reason="X", action="Validate", note="ü" * 2000)
    await a_recorder(kube, FakeClock()).record(RAY_CLUSTER, META, long)
    assert len(kube.requests[0].body["note"].encode()) <= 1024


async def test_a_lost_event_does_not_fail_the_reconcile() -> None:
    kube = FakeKube()
    kube.faults.append(lambda _request: errors.Forbidden("no"))
    await a_recorder(kube, FakeClock()).record(RAY_CLUSTER, META, CREATED)
    assert len(kube.requests) == 1
