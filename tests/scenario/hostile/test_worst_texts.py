"""1 MB of the worst text that a generator finds, in each field of a tenant, a pod or a dashboard.

The services run in memory and serve a RayService or a RayCluster when the text arrives: in a field
of a CRD, of another object that they read, or of a dashboard's answer. Each turn of the event loop
has a time limit that a linear reader keeps, and the memory has the limit of the container. The time
limit is generous, since the fakes read and write each object, too.
"""

import copy
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from cluster_reconciler import refusals
from cluster_reconciler.config import Config
from common.api import ray_cluster, ray_service
from common.api.opaque import Body, Json
from common.feature_gates import BETA
from common.kube.resources import Resource
from common.ray import deployed_config, serve_config, serve_status, spec_hash
from common.upgrade import controls, policy
from scenario.hostile import worst_fields
from scenario.hostile.attacks import TENANT, Attack
from scenario.hostile.tenancy import VIEWS, WATCHED, Tenancy, Watch, run_watched
from scenario.hostile.worst_fields import ROOTS, SIZE, Field
from service_reconciler import validation
from support import worst_texts
from support.laws import tenancies
from support.worst_texts import WorstText

COUNT: Final = int(os.environ.get("HOSTILE", "100"))
MAX_TURN: Final = 4.0
"""Maximum seconds of processor time in one turn of the loop; a quadratic reader takes minutes."""
MAX_MEMORY: Final = 512 * 2**20
"""Maximum additional bytes of the process; the containers have 1 GiB."""
ANSWER: Final[Json] = {
    "applications": {"app": {"status": "RUNNING", "deployments": {"d": {"status": "HEALTHY"}}}},
    "proxies": {"n": {"status": "HEALTHY", "node_ip": "10.0.0.1"}},
}
TRIED: Final = tuple(each for each in worst_texts.candidates() if each.head in {"", "name: "})
CHECKED_BY_THE_API_SERVER: Final = {"metadata", "apiVersion", "kind"}
"""The API server enforces formats of names, uids, owners and labels, but not of annotations."""


def _fields() -> Iterator[Field]:
    yield from (each for each in worst_fields.of_crd("RayCluster") if not _is_repeated(each))
    yield from filter(worst_fields.is_of_ray, worst_fields.of_crd("RayService"))
    for kind, view in VIEWS.items():
        if kind not in ROOTS:
            yield from (
                each
                for each in worst_fields.of_view(kind, view)
                if each.place[0] not in CHECKED_BY_THE_API_SERVER
                or each.place[:2] == ("metadata", "annotations")
            )
    yield from worst_fields.of_answers()


def _is_repeated(field: Field) -> bool:
    """Return whether a text is one of a worker's pod template: it is read as that of the head."""
    return {"workerGroupSpecs", "template"} <= set(map(str, field.place))


ALL: Final = tuple(_fields())
ALWAYS: Final = frozenset(
    {
        "RayCluster: spec.rayVersion",
        "RayCluster: spec.workerGroupSpecs.[0].groupName",
        "RayCluster: spec.headGroupSpec.rayStartParams.the-key",
        "RayService: spec.rayClusterConfig.rayVersion",
        "RayService: spec.serveConfigV2",
        "RayService: metadata.annotations.raybus.io/upgrade-policy-record",
        "RayService: status.activeServiceStatus.rayClusterName",
        "Pod: status.containerStatuses.[0].state.waiting.message",
        "Pod: spec.nodeName",
        "HTTPRoute: status.parents.[0].conditions.[0].message",
        "ControllerRevision: data.serveConfigV2",
        "an answer: applications.the-key.message",
    }
)
"""In each run; of the others as many as `HOSTILE` says, 20 attacks count as one of them."""
CHOSEN: Final = (
    ALL
    if COUNT >= 2000
    else (
        *(each for each in ALL if str(each) in ALWAYS),
        *random.Random(COUNT).sample(ALL, COUNT // 20),
    )
)


@pytest.mark.parametrize("field", CHOSEN, ids=str)
def test_a_megabyte_of_the_worst_text_costs_nobody_else_anything(field: Field) -> None:
    worst = _worst(field)
    text = worst.of_size(field.size)
    watch = Watch()
    before = _reset_peak_memory()
    tenancy = run_watched(lambda: _suffer(field, text, watch), watch)
    assert watch.longest < MAX_TURN, f"{field}, {worst}: {watch.longest:.1f} s"
    assert _peak_memory() - before < MAX_MEMORY, f"{field}, {worst}"
    assert [each for each in tenancies.broken(tenancy) if "without a reason" not in each] == []


@pytest.mark.parametrize("field", tuple(worst_fields.of_policies()), ids=str)
def test_a_megabyte_in_a_policy_is_read_in_linear_time(field: Field) -> None:
    def read(text: str) -> None:
        policy.read("p", field.with_text({}, text)["spec"])

    worst = worst_texts.find(read, refusals=(policy.PolicyError,), tried=TRIED, count=1)[0]
    taken = worst_texts.seconds(read, worst.of_size(SIZE), refusals=(policy.PolicyError,))
    assert taken < MAX_TURN, str(worst)


def test_each_field_that_is_always_tried_exists() -> None:
    assert {str(each) for each in ALL} >= ALWAYS


def _worst(field: Field) -> WorstText:
    """Return the text that costs the decoders and the pure decisions about a field the most."""
    if field.kind in ROOTS:
        body, read = ROOTS[field.kind][1], _READERS[field.kind]
    elif field.kind == "an answer":
        body, read = ANSWER, _read_answer
    else:
        body, read = {"metadata": {"name": "x"}}, partial(_read_view, VIEWS[field.kind])
    return worst_texts.find(
        lambda text: read(field.with_text(body, text)),
        refusals=(msgspec.DecodeError, ValueError),
        tried=TRIED,
        count=1,
    )[0]


def _read_cluster(body: Body) -> None:
    cluster = ray_cluster.decode(body)
    refusals.find_violation_plan(cluster, Config(gates=BETA))
    spec_hash.cluster_spec_hash(cluster.raw_spec)


def _read_service(body: Body) -> None:
    service = ray_service.decode(body)
    controls.read_controls(service)
    validation.violation(service, BETA)
    serve_config.parse(service.serve_config)


def _read_view(view: type[Any], body: Body) -> None:
    msgspec.json.decode(msgspec.json.encode(body), type=view)


def _read_answer(answer: Json) -> None:
    details = serve_status.decode(msgspec.json.encode(answer))
    deployed_config.fingerprint(details)
    deployed_config.differences(serve_config.parse("applications: []"), details)
    serve_status.not_serving(details)


_READERS: Final[dict[str, Callable[[Body], None]]] = {
    "RayCluster": _read_cluster,
    "RayService": _read_service,
}


async def _suffer(field: Field, text: str, watch: Watch) -> Tenancy:
    """Return the services after they ran with a sound object, and then with the text."""
    resource, body = ROOTS.get(field.kind, ROOTS["RayService"])
    answer = (
        msgspec.json.encode(field.with_text(ANSWER, text)) if field.kind == "an answer" else None
    )
    tenancy = Tenancy(Attack(resource=resource, body=body, later=body, answer=answer, is_late=True))
    async with tenancy.running():
        tenancy.apply(resource, body)
        await tenancy.live(6)
        watch.longest, before = 0.0, tenancy.reconciles.total()
        tenancy.is_changed = True
        if answer is None:
            _write(tenancy, field, text)
        await tenancy.live(2)
        tenancy.scrape()
        assert field.kind not in ROOTS or tenancy.reconciles.total() > before, "nothing read it"
    return tenancy


def _write(tenancy: Tenancy, field: Field, text: str) -> None:
    """Put the text into an object that exists, or into one beside it."""
    resource = next(each for each in WATCHED if each.kind == field.kind)
    found = tenancy.kube.all(resource, TENANT)
    body: Body = copy.deepcopy(found[0]) if found else _beside(resource)
    tenancy.kube.put(resource, field.with_text(body, text))


def _beside(resource: Resource) -> Body:
    report: Json = {"controllerName": "example.com/one", "parentRef": {"name": "shared"}}
    return {
        "metadata": {"name": "beside", "namespace": TENANT, "labels": {}},
        "spec": {},
        "status": {"parents": [{**report, "conditions": []}]} if "Route" in resource.kind else {},
    }


def _reset_peak_memory() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_memory()


def _peak_memory() -> int:
    """Return the bytes that the process had at most since the last reset."""
    status = Path("/proc/self/status").read_text()
    line = next(each for each in status.splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
