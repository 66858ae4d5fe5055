"""The effect of a closed fence: every write to the API server, to dashboards and to streams is
stopped before anything is sent.
"""

import pytest

from common import errors
from common.bus.nats import Bus
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import POD
from common.kube.rest_config import RestConfig
from common.ray.dashboard import APPLICATIONS, DirectDashboard, ProxiedDashboard, Target
from common.runtime.fence import Fence
from common.settings import Settings

HEAD = Target(namespace="ns", name="head", port=8265, head_ip="127.0.0.1")


class Watch:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_is_open_only_until_the_moment_that_a_renewal_named() -> None:
    clock = Watch()
    fence = Fence(clock)
    assert not fence.is_open
    fence.open_until = 5.0
    clock.now = 4.9
    fence.check()
    clock.now = 5.0
    with pytest.raises(errors.OwnershipLost):
        fence.check()
    fence.open_until = 9.0
    fence.close()
    with pytest.raises(errors.OwnershipLost):
        fence.check()


async def test_no_write_to_the_api_server_is_sent() -> None:
    nowhere = RestConfig(server="http://127.0.0.1:9")
    kube = KubeClient(nowhere, user_agent="test")
    kube.may_write = Fence().check
    try:
        for write in (
            kube.create(POD, "ns", {"metadata": {"name": "a"}}),
            kube.replace(POD, "ns", {"metadata": {"name": "a"}}),
            kube.patch(POD, "ns", "a", PatchRequest(body={})),
            kube.delete(POD, "ns", "a"),
            kube.delete_collection(POD, "ns", label_selector="a=b"),
            ProxiedDashboard(kube).request(HEAD, APPLICATIONS, most=1, config={}),
            DirectDashboard(domain="nowhere", check_write=kube.may_write).request(
                HEAD, APPLICATIONS, most=1, config={}
            ),
        ):
            with pytest.raises(errors.OwnershipLost):
                await write
        with pytest.raises(errors.Unavailable):  # reads are sent
            await kube.get(POD, "ns", "a")
    finally:
        await kube.close()


async def test_nothing_is_published() -> None:
    bus = Bus(Settings(service="test"))
    bus.guard(Fence().check)
    with pytest.raises(errors.OwnershipLost):
        await bus.publish("ray.events.ns.svc.started", b"", {}, expected=None, message_id="1")
