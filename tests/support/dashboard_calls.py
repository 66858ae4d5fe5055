"""The calls that raybus makes to a dashboard and to pods, as `ServeApi` makes them, for every
implementation of `Dashboard`.
"""

from urllib.parse import quote

import msgspec

from common.api.core import Pod, PodStatus
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.ray import ports, serve_status
from common.ray.dashboard import APPLICATIONS, MAX_STATUS_SIZE, STATUS, Dashboard, Target
from common.ray.jobs import PATH as JOBS
from common.ray.ongoing import Ongoing
from common.ray.serve_api import ServeApi
from common.ray.serve_status import ServeDetails
from common.runtime.cache import Cache
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube


def a_head(namespace: str, *, token: str | None = None) -> Target:
    """Return the dashboard behind a head's Service."""
    return Target(
        namespace=namespace,
        name="demo-head-svc",
        port=ports.DASHBOARD,
        head_ip="127.0.0.1",
        token=token,
    )


def a_pod(namespace: str) -> Pod:
    """Return a pod that runs on loopback."""
    return Pod(
        metadata=ObjectMeta(name="demo-head", namespace=namespace, uid="demo-head-uid"),
        status=PodStatus(phase="Running", pod_ip="127.0.0.1"),
    )


async def read(dashboard: Dashboard, head: Target) -> ServeDetails:
    """Read the state of all applications."""
    return serve_status.decode(await dashboard.request(head, STATUS, most=MAX_STATUS_SIZE))


async def deploy(dashboard: Dashboard, head: Target, config: Json) -> None:
    """Replace the whole Serve config."""
    await dashboard.request(head, APPLICATIONS, most=MAX_STATUS_SIZE, config=config)


async def read_job(dashboard: Dashboard, head: Target, job_id: str) -> Json:
    """Read the state of a Ray job."""
    path = f"{JOBS}{quote(job_id, safe='')}"
    return msgspec.json.decode(await dashboard.request(head, path, most=MAX_STATUS_SIZE))


async def submit_job(dashboard: Dashboard, head: Target, submission: Json) -> Json:
    """Submit a Ray job."""
    answer = await dashboard.request(head, JOBS, most=MAX_STATUS_SIZE, post=submission)
    return msgspec.json.decode(answer)


async def stop_job(dashboard: Dashboard, head: Target, job_id: str) -> Json:
    """Stop a Ray job."""
    path = f"{JOBS}{quote(job_id, safe='')}/stop"
    return msgspec.json.decode(await dashboard.request(head, path, most=MAX_STATUS_SIZE, post={}))


async def is_proxy_healthy(dashboard: Dashboard, pod: Pod) -> bool:
    """Check a pod's proxy once."""
    return await ServeApi(dashboard, FakeKube(), Cache(), FakeClock()).check_proxy(
        pod, max_age=0
    ) == (True,)


async def ongoing_requests(dashboard: Dashboard, pod: Pod) -> Ongoing | None:
    """Read a pod's requests in flight."""
    return await ServeApi(dashboard, FakeKube(), Cache(), FakeClock()).ongoing_requests(pod)
