"""The doctor's findings about an installation: one without faults, and each fault by itself."""

import copy
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
import pytest

from common.api import ray_service
from common.api.gateway import GatewayClass
from common.bus.subjects import PARTITIONS
from common.feature_gates import FeatureGate
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
    RECONCILERS,
    Facts,
    Lease,
    Right,
    Watching,
    Workload,
)
from support.builders.snapshots import NOW, a_condition, a_ready_service, a_service
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of

SERVER = certificates.make_server_certificate(
    certificates.make_ca(now=NOW), names=["nats"], now=NOW, lifetime=timedelta(days=90)
).certificate

OK, WARNING, FAILED, UNKNOWN = CheckState
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
        *(_lease(f"raybus-{name}-0", service=name, partitions=partitions) for name in RECONCILERS),
    ]


@cache
def _crds() -> dict[str, Schema]:
    every = (*definitions.all_definitions().values(), upgrade_policy.definition())
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
    found = checks.check_all(_well(), now=NOW)
    assert {each.state for each in found} == {OK}
    assert {each.hint for each in found} == {None}
    assert list(dict.fromkeys(each.category for each in found)) == list(Category)
    golden.check("cli/doctor.txt", text_of(cli.draw(found)))


def test_an_installation_with_mutual_tls_that_is_well() -> None:
    facts = _well(
        gates=frozenset({FeatureGate.MTLS}),
        has_cert_manager=True,
        rights=[_mtls_right(is_allowed=True)],
    )
    found = {each.name: each for each in checks.check_all(facts, now=NOW)}
    assert {each.state for each in found.values()} == {OK}
    assert "cert-manager.io/v1 is served" in found["feature gate RayClusterMTLS"].text


def _outside(**fields: Any) -> Facts:
    nothing: dict[str, Any] = {"deployments": [], "stateful_sets": [], "certificates": None}
    return _well(is_outside=True, **nothing | fields)


def test_an_installation_outside_the_cluster_that_is_well() -> None:
    found = checks.check_all(_outside(), now=NOW)
    assert {each.state for each in found} == {OK}
    texts = {each.name: each.text for each in found}
    assert texts["installation"] == "outside the cluster, with Leases in namespace raybus"
    assert texts["job-reconciler"] == "1 replica(s) outside the cluster"
    assert Category.NATS not in {each.category for each in found}


def test_a_service_that_was_killed_outside_the_cluster() -> None:
    leases = [each for each in _leases() if each.metadata.name != "raybus-job-reconciler-0"]
    leases.append(_lease("raybus-job-reconciler-0", age=600, service="job-reconciler"))
    found = checks.check_all(_outside(leases=leases), now=NOW)
    failed = {each.name: each for each in found if each.state is not OK}
    assert failed.keys() == {"job-reconciler", "partitions of job-reconciler"}
    for each in failed.values():
        assert "docker compose logs job-reconciler" in each.remedy
        assert "kubectl" not in each.remedy


def test_kuberay_in_namespaces_of_its_own_is_a_note() -> None:
    found = prerequisites.check_kuberay(
        _well(kuberay=[Watching("ray/op", TEAM_B)], watch_namespaces=TEAM_A)
    )
    text = "runs in ray/op and watches team-b; raybus watches team-a"
    assert (found.state, found.text, found.remedy) == (OK, text, "")


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


@cases(
    ("facts", "name", "state", "text"),
    {
        "old Kubernetes": (lambda: _well(server_version="v1.20.1"), "Kubernetes", WARNING, "older"),
        "a gate without cert-manager": (
            lambda: _well(gates=frozenset({FeatureGate.MTLS}), has_cert_manager=False),
            "feature gate RayClusterMTLS",
            FAILED,
            "cert-manager.io/v1 is not served",
        ),
        "a gate whose group may not be listed": (
            lambda: _well(gates=frozenset({FeatureGate.MTLS})),
            "feature gate RayClusterMTLS",
            UNKNOWN,
            "does not list the group",
        ),
        "a gate without its rights": (
            lambda: _well(
                gates=frozenset({FeatureGate.MTLS}), rights=[_mtls_right(is_allowed=False)]
            ),
            "rights of cluster-reconciler for RayClusterMTLS",
            FAILED,
            "lacking: patch secrets",
        ),
        "a gate that needs a newer Kubernetes": (
            lambda: _well(gates=frozenset({FeatureGate.SIDECAR_SUBMITTER_RESTART})),
            "feature gates",
            FAILED,
            "requires Kubernetes 1.35",
        ),
        "no CRD": (
            lambda: _well(definitions={"rayclusters.ray.io": None}),
            "CRD rayclusters.ray.io",
            FAILED,
            "not installed",
        ),
        "no CRD of policies": (
            lambda: _well(definitions={**_crds(), "upgradepolicies.raybus.io": None}),
            "CRD upgradepolicies.raybus.io",
            WARNING,
            "RayServices have no upgrade policies",
        ),
        "an old CRD": (_old_crd, "CRD rayservices.ray.io", WARNING, "spec.upgradeStrategy"),
        "no service": (lambda: _well(deployments=[]), "watcher", FAILED, "no Deployment watcher"),
        "a service is down": (
            lambda: _well(deployments=_instead("traffic-manager", ready=0)),
            "traffic-manager",
            FAILED,
            "0 of 1 ready",
        ),
        "a service is off": (
            lambda: _well(deployments=_instead("watcher", ready=0, replicas=0)),
            "watcher",
            FAILED,
            "scaled to 0",
        ),
        "a replica is down": (
            lambda: _well(deployments=_instead("watcher", ready=1, replicas=2)),
            "watcher",
            WARNING,
            "1 of 2 ready",
        ),
        "another version": (
            lambda: _well(deployments=_instead("watcher", tag="9.9.9")),
            "watcher",
            WARNING,
            f"this command line is {VERSION}",
        ),
        "NATS elsewhere": (lambda: _well(stateful_sets=[]), "nats", WARNING, "another NATS"),
        "no leader": (lambda: _well(leases=[]), "leader", FAILED, "has no holder"),
        "a leader that is gone": (
            lambda: _well(leases=[_lease("ray-operator-leader", age=600)]),
            "leader",
            FAILED,
            "has not renewed",
        ),
        "a partition that has no holder": (
            lambda: _well(leases=_leases(PARTITIONS - 1)),
            "partitions of traffic-manager",
            FAILED,
            "63 of 64",
        ),
        "a partition that two hold": (
            lambda: _well(leases=_one_lease_more()),
            "partitions of traffic-manager",
            FAILED,
            "1 held twice",
        ),
        "no Gateway API": (
            lambda: _well(gateway_versions=[]),
            "Gateway API",
            FAILED,
            "is not installed",
        ),
        "a class that nobody serves": (
            lambda: _well(gateway_classes=[_class("envoy", "False")]),
            "Gateway API",
            FAILED,
            "GatewayClass envoy",
        ),
        "KubeRay beside, for all namespaces": (
            lambda: _well(kuberay=[Watching("ray/op")], watch_namespaces=TEAM_A),
            "KubeRay",
            WARNING,
            "runs in ray/op",
        ),
        "raybus for all namespaces": (
            lambda: _well(kuberay=[Watching("ray/op", TEAM_A)]),
            "KubeRay",
            WARNING,
            "runs in ray/op and watches team-a",
        ),
        "a common namespace with one of two": (
            lambda: _well(
                kuberay=[Watching("ray/op", TEAM_A), Watching("far/op", TEAM_B)],
                watch_namespaces=TEAM_A | frozenset({"team-c"}),
            ),
            "KubeRay",
            WARNING,
            "runs in ray/op and watches team-a",
        ),
        "a right is missing": (
            lambda: _well(
                rights=[
                    Right(
                        subject="watcher", verb="watch", resource="pods", group="", is_allowed=False
                    )
                ]
            ),
            "rights of watcher",
            FAILED,
            "lacking: watch pods",
        ),
        "no PEM": (
            lambda: _well(certificates=[b"x"]),
            "NATS certificate",
            FAILED,
            "cannot be read",
        ),
        "a RayService with a fault": (
            lambda: _well(ray_services=[ray_service.decode(STALLED)]),
            "RayService default/demo",
            WARNING,
            "Stalled: no GPU",
        ),
        "many RayServices with a fault": (
            lambda: _well(ray_services=[ray_service.decode(STALLED)] * 12),
            "other RayServices",
            WARNING,
            "2 more",
        ),
        "no rights": (
            lambda: Facts(namespace="raybus"),
            "services",
            UNKNOWN,
            "you may not read Deployments",
        ),
    },
)
def test_each_fault_is_named_with_a_remedy(
    facts: Callable[[], Facts], name: str, state: CheckState, text: str
) -> None:
    found = next(each for each in checks.check_all(facts(), now=NOW) if each.name == name)
    assert found.state is state
    assert text in found.text
    assert (bool(found.remedy), found.hint is not None) == (state is not UNKNOWN,) * 2


@pytest.mark.parametrize(("days", "state"), [(80, WARNING), (100, FAILED), (0, OK)])
def test_a_certificate_is_renewed_in_time(days: int, state: CheckState) -> None:
    found = checks.check_all(_well(), now=NOW + timedelta(days=days))
    assert next(each for each in found if each.name == "NATS certificate").state is state
