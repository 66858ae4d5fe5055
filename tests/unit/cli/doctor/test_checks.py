"""What the doctor makes of an installation: one that is well, and each fault by itself."""

import copy
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
import pytest

from common.api import ray_service
from common.bus.subjects import PARTITIONS
from common.feature_gates import Gate
from common.runtime import ownership
from common.version import VERSION
from crd_generator import definitions, upgrade_policy
from crd_generator.schema import Schema
from nats_admin import certificates
from raybus_cli.doctor import checks, cli, prerequisites
from raybus_cli.doctor.check import Category, CheckState
from raybus_cli.doctor.checks import SERVICES
from raybus_cli.doctor.facts import (
    MTLS_SUBJECT,
    Facts,
    GatewayClass,
    Lease,
    Right,
    Watching,
    Workload,
)
from support.builders.snapshots import NOW, a_condition, a_ready_service, a_service
from support.golden import Golden
from support.terminal import text_of

SERVER = certificates.make_server_certificate(
    certificates.make_authority(now=NOW), names=["nats"], now=NOW, lifetime=timedelta(days=90)
).certificate

TEAM_A, TEAM_B = frozenset({"team-a"}), frozenset({"team-b"})
STALLED = a_service(a_condition("UpgradeStalled", reason="PodsNotStarting", message="no GPU"))


def _workload(name: str, *, ready: int = 1, replicas: int = 1, tag: str = VERSION) -> Workload:
    template = {
        "spec": {"containers": [{"name": name, "image": f"registry.invalid/raybus/{name}:{tag}"}]}
    }
    body = {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": template},
        "status": {"readyReplicas": ready},
    }
    return msgspec.convert(body, Workload)


def _lease(name: str, *, age: float = 1, service: str = "", partitions: str = "") -> Lease:
    renewed = (NOW - timedelta(seconds=age)).isoformat()
    meta: dict[str, Any] = {
        "name": name,
        "labels": {},
        "annotations": {"raybus.io/partitions": partitions},
    }
    if service:
        meta["labels"] = {"raybus.io/replica-of": service}
    body = {
        "metadata": meta,
        "spec": {"holderIdentity": f"{name}-0", "leaseDurationSeconds": 7, "renewTime": renewed},
    }
    return msgspec.convert(body, Lease, strict=False)


def _class(name: str, status: str = "True") -> GatewayClass:
    condition = {
        "type": "Accepted",
        "status": status,
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": NOW.isoformat(),
    }
    return msgspec.convert(
        {"metadata": {"name": name}, "status": {"conditions": [condition]}}, GatewayClass
    )


def _leases(count: int = PARTITIONS) -> list[Lease]:
    partitions = ownership.format_partitions(range(count))
    return [
        _lease("ray-operator-leader"),
        *(
            _lease(f"raybus-{name}-0", service=name, partitions=partitions)
            for name in checks.RECONCILERS
        ),
    ]


@cache
def _crds() -> dict[str, Schema]:
    every = (*definitions.installed_definitions().values(), upgrade_policy.definition())
    return {each["metadata"]["name"]: each for each in every}


def _well(**fields: Any) -> Facts:
    defaults: dict[str, Any] = {
        "server_version": "v1.34.2",
        "definitions": _crds(),
        "deployments": [_workload(name) for name in SERVICES],
        "stateful_sets": [_workload("nats", tag="2.11.0")],
        "leases": _leases(),
        "certificates": [SERVER],
        "gateway_versions": ["v1"],
        "gateway_classes": [_class("envoy")],
        "asked_classes": frozenset({"envoy"}),
        "kuberay": [],
        "ray_services": [ray_service.decode(a_ready_service())],
        "rights": [
            Right(
                subject="you", verb="get", resource="rayservices", group="ray.io", is_allowed=True
            )
        ],
    }
    return Facts(namespace="raybus", **{**defaults, **fields})


def test_an_installation_that_is_well(golden: Golden) -> None:
    found = checks.all_of(_well(), now=NOW)
    assert {each.state for each in found} == {CheckState.OK}
    assert {each.hint for each in found} == {None}
    assert list(dict.fromkeys(each.category for each in found)) == list(Category)
    golden.check("cli/doctor.txt", text_of(cli.draw(found)))


def test_an_installation_with_mutual_tls_that_is_well() -> None:
    facts = _well(
        gates=frozenset({Gate.MTLS}), has_cert_manager=True, rights=[_mtls_right(is_allowed=True)]
    )
    found = {each.name: each for each in checks.all_of(facts, now=NOW)}
    assert {each.state for each in found.values()} == {CheckState.OK}
    assert "cert-manager.io/v1 is served" in found["feature gate RayClusterMTLS"].text


def test_kuberay_in_namespaces_of_its_own_is_a_note() -> None:
    found = prerequisites.kuberay(
        _well(kuberay=[Watching("ray/op", TEAM_B)], watch_namespaces=TEAM_A)
    )
    text = "runs in ray/op and watches team-b; raybus watches team-a"
    assert (found.state, found.text, found.remedy) == (CheckState.OK, text, "")


def _old_crd() -> Facts:
    crds = copy.deepcopy(_crds())
    v1 = crds["rayservices.ray.io"]["spec"]["versions"][0]
    del v1["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["upgradeStrategy"]
    return _well(definitions=crds)


def _instead(name: str, **fields: Any) -> list[Workload]:
    return [_workload(each, **fields) if each == name else _workload(each) for each in SERVICES]


def _mtls_right(*, is_allowed: bool) -> Right:
    return Right(
        subject=MTLS_SUBJECT, verb="patch", resource="secrets", group="", is_allowed=is_allowed
    )


def _one_lease_more() -> list[Lease]:
    return [
        *_leases(),
        _lease("raybus-traffic-manager-1", service="traffic-manager", partitions="5"),
    ]


@pytest.mark.parametrize(
    ("facts", "name", "state", "text"),
    [
        pytest.param(
            lambda: _well(server_version="v1.20.1"),
            "Kubernetes",
            CheckState.WARNING,
            "older",
            id="old Kubernetes",
        ),
        pytest.param(
            lambda: _well(gates=frozenset({Gate.MTLS}), has_cert_manager=False),
            "feature gate RayClusterMTLS",
            CheckState.FAILED,
            "cert-manager.io/v1 is not served",
            id="a gate without cert-manager",
        ),
        pytest.param(
            lambda: _well(gates=frozenset({Gate.MTLS})),
            "feature gate RayClusterMTLS",
            CheckState.UNKNOWN,
            "does not list the group",
            id="a gate whose group may not be listed",
        ),
        pytest.param(
            lambda: _well(gates=frozenset({Gate.MTLS}), rights=[_mtls_right(is_allowed=False)]),
            "rights of cluster-reconciler for RayClusterMTLS",
            CheckState.FAILED,
            "lacking: patch secrets",
            id="a gate without its rights",
        ),
        pytest.param(
            lambda: _well(gates=frozenset({Gate.SIDECAR_SUBMITTER_RESTART})),
            "feature gates",
            CheckState.FAILED,
            "requires Kubernetes 1.35",
            id="a gate that needs a newer Kubernetes",
        ),
        pytest.param(
            lambda: _well(definitions={"rayclusters.ray.io": None}),
            "CRD rayclusters.ray.io",
            CheckState.FAILED,
            "not installed",
            id="no CRD",
        ),
        pytest.param(
            lambda: _well(definitions={**_crds(), "upgradepolicies.raybus.io": None}),
            "CRD upgradepolicies.raybus.io",
            CheckState.WARNING,
            "RayServices have no upgrade policies",
            id="no CRD of policies",
        ),
        pytest.param(
            _old_crd,
            "CRD rayservices.ray.io",
            CheckState.WARNING,
            "spec.upgradeStrategy",
            id="an old CRD",
        ),
        pytest.param(
            lambda: _well(deployments=[]),
            "watcher",
            CheckState.FAILED,
            "no Deployment watcher",
            id="no service",
        ),
        pytest.param(
            lambda: _well(deployments=_instead("traffic-manager", ready=0)),
            "traffic-manager",
            CheckState.FAILED,
            "0 of 1 ready",
            id="a service is down",
        ),
        pytest.param(
            lambda: _well(deployments=_instead("watcher", ready=0, replicas=0)),
            "watcher",
            CheckState.FAILED,
            "scaled to 0",
            id="a service is off",
        ),
        pytest.param(
            lambda: _well(deployments=_instead("watcher", ready=1, replicas=2)),
            "watcher",
            CheckState.WARNING,
            "1 of 2 ready",
            id="a replica is down",
        ),
        pytest.param(
            lambda: _well(deployments=_instead("watcher", tag="9.9.9")),
            "watcher",
            CheckState.WARNING,
            f"this command line is {VERSION}",
            id="another version",
        ),
        pytest.param(
            lambda: _well(stateful_sets=[]),
            "nats",
            CheckState.WARNING,
            "another NATS",
            id="NATS elsewhere",
        ),
        pytest.param(
            lambda: _well(leases=[]), "leader", CheckState.FAILED, "has no holder", id="no leader"
        ),
        pytest.param(
            lambda: _well(leases=[_lease("ray-operator-leader", age=600)]),
            "leader",
            CheckState.FAILED,
            "has not renewed",
            id="a leader that is gone",
        ),
        pytest.param(
            lambda: _well(leases=_leases(PARTITIONS - 1)),
            "partitions of traffic-manager",
            CheckState.FAILED,
            "63 of 64",
            id="a partition that has no holder",
        ),
        pytest.param(
            lambda: _well(leases=_one_lease_more()),
            "partitions of traffic-manager",
            CheckState.FAILED,
            "1 held twice",
            id="a partition that two hold",
        ),
        pytest.param(
            lambda: _well(gateway_versions=[]),
            "Gateway API",
            CheckState.FAILED,
            "is not installed",
            id="no Gateway API",
        ),
        pytest.param(
            lambda: _well(gateway_classes=[_class("envoy", "False")]),
            "Gateway API",
            CheckState.FAILED,
            "GatewayClass envoy",
            id="a class that nobody serves",
        ),
        pytest.param(
            lambda: _well(kuberay=[Watching("ray/op")], watch_namespaces=TEAM_A),
            "KubeRay",
            CheckState.WARNING,
            "runs in ray/op",
            id="KubeRay beside, for all namespaces",
        ),
        pytest.param(
            lambda: _well(kuberay=[Watching("ray/op", TEAM_A)]),
            "KubeRay",
            CheckState.WARNING,
            "runs in ray/op and watches team-a",
            id="raybus for all namespaces",
        ),
        pytest.param(
            lambda: _well(
                kuberay=[Watching("ray/op", TEAM_A), Watching("far/op", TEAM_B)],
                watch_namespaces=TEAM_A | frozenset({"team-c"}),
            ),
            "KubeRay",
            CheckState.WARNING,
            "runs in ray/op and watches team-a",
            id="a common namespace with one of two",
        ),
        pytest.param(
            lambda: _well(
                rights=[
                    Right(
                        subject="watcher", verb="watch", resource="pods", group="", is_allowed=False
                    )
                ]
            ),
            "rights of watcher",
            CheckState.FAILED,
            "lacking: watch pods",
            id="a right is missing",
        ),
        pytest.param(
            lambda: _well(certificates=[b"x"]),
            "NATS certificate",
            CheckState.FAILED,
            "cannot be read",
            id="no PEM",
        ),
        pytest.param(
            lambda: _well(ray_services=[ray_service.decode(STALLED)]),
            "RayService default/demo",
            CheckState.WARNING,
            "Stalled: no GPU",
            id="a RayService with a fault",
        ),
        pytest.param(
            lambda: _well(ray_services=[ray_service.decode(STALLED)] * 12),
            "other RayServices",
            CheckState.WARNING,
            "2 more",
            id="many RayServices with a fault",
        ),
        pytest.param(
            lambda: Facts(namespace="raybus"),
            "services",
            CheckState.UNKNOWN,
            "you may not read Deployments",
            id="no rights",
        ),
    ],
)
def test_each_fault_is_named_with_a_remedy(
    facts: Callable[[], Facts], name: str, state: CheckState, text: str
) -> None:
    found = next(each for each in checks.all_of(facts(), now=NOW) if each.name == name)
    assert found.state is state
    assert text in found.text
    assert (bool(found.remedy), found.hint is not None) == (state is not CheckState.UNKNOWN,) * 2


@pytest.mark.parametrize(
    ("days", "state"), [(80, CheckState.WARNING), (100, CheckState.FAILED), (0, CheckState.OK)]
)
def test_a_certificate_is_renewed_in_time(days: int, state: CheckState) -> None:
    found = checks.all_of(_well(), now=NOW + timedelta(days=days))
    assert next(each for each in found if each.name == "NATS certificate").state is state
