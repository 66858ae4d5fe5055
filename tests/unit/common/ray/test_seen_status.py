"""The last answer of Serve in a cluster, as metrics show it."""

from msgspec.structs import replace

from common.api.opaque import Json
from common.ray.serve_api import ServeApi
from common.ray.view import ServeView
from common.runtime.cache import Cache
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.fakes.serve import FakeServe
from unit.common.ray.test_head_address import OWN, SERVICE, a_cluster, a_slice

APP: Json = {"name": "app", "import_path": "app:main"}
BY_CODE: Json = {"status": "UNHEALTHY", "deployments": {}, "deployed_app_config": None}


async def test_an_application_outside_of_the_config_is_not_shown() -> None:
    cache, clock, cluster = Cache(), FakeClock(), a_cluster()
    cache.put(replace(SERVICE, metadata=replace(SERVICE.metadata, uid="uid-of-svc")))
    cache.put(a_slice(OWN))
    serve = FakeServe(clock)
    head = serve.head("c-head-svc")
    head.deploy({"applications": [APP]})
    head.shows = {"mine": BY_CODE}
    api = ServeApi(serve, FakeKube(), cache, clock)
    view = await api.poll(ServeView(cluster=cluster), max_age=1.0, now=clock.now())
    assert view.declared is not None
    await api.configs.read(view.given)
    seen = api.last_reading(cluster)
    assert seen is not None
    assert seen[0] is not None
    assert set(seen[0].applications) == {"app"}
