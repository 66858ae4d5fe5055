"""The health checks for Argo CD (Lua) and Flux (CEL), run on statuses that raybus writes."""

from typing import Any, Final

import cel
import msgspec
import pytest
import yaml
from lupa import lua51

from common.api.ray_service import RayService
from raybus_cli.show import phase
from raybus_cli.show.phase import ServicePhase
from support.builders.snapshots import READY, UPGRADING, a_condition, a_service, a_side
from support.manifests import ROOT

Body = dict[str, Any]
ARGO: Final = yaml.safe_load((ROOT / "examples" / "argo-cd" / "argocd-cm.yaml").read_text())["data"]
FLUX: Final = yaml.safe_load((ROOT / "examples" / "flux" / "kustomization.yaml").read_text())[
    "spec"
]
CHECKS: Final = {each["kind"]: each for each in FLUX["healthCheckExprs"]}
LIBRARIES: Final = (
    "string",
    "math",
    "io",
    "os",
    "debug",
    "coroutine",
    "package",
    "require",
    "python",
)
"""Lua libraries that Argo CD does not give to a check, or only in a modified form."""

ARGO_OF_PHASE: Final = {
    ServicePhase.DELETING: "Progressing",
    ServicePhase.INVALID: "Degraded",
    ServicePhase.TIMED_OUT: "Degraded",
    ServicePhase.SUSPENDED: "Suspended",
    ServicePhase.SUSPENDING: "Progressing",
    ServicePhase.ABORTED: "Degraded",
    ServicePhase.STALLED: "Degraded",
    ServicePhase.ROLLING_BACK: "Progressing",
    ServicePhase.PAUSED: "Suspended",
    ServicePhase.UPGRADING: "Progressing",
    ServicePhase.READY: "Healthy",
    ServicePhase.STARTING: "Progressing",
    ServicePhase.NOT_READY: "Degraded",
}


def argo(body: Body) -> tuple[str, str]:
    """Return status and message as Argo CD obtains them."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    for name in LIBRARIES:
        lua.globals()[name] = None
    lua.globals()["obj"] = lua.table_from(body, recursive=True)
    found: Any = lua.execute(ARGO[f"resource.customizations.health.ray.io_{body['kind']}"])
    return str(found["status"]), str(found["message"])


def flux(body: Body) -> str:
    """Return the status as Flux obtains it: the generation first, then the first expression that is true."""
    if (
        body["status"].get("observedGeneration", body["metadata"]["generation"])
        != body["metadata"]["generation"]
    ):
        return "inProgress"
    for name in ("inProgress", "failed", "current"):
        try:
            if cel.evaluate(CHECKS[body["kind"]][name], body):
                return name
        except (KeyError, ValueError, RuntimeError):
            return "inProgress"  # it reports the error and waits
    return "inProgress"


def ready(reason: str, status: str = "False") -> Body:
    return a_condition("Ready", status, reason=reason, message="a message")


def deleted(body: Body) -> Body:
    body["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    return body


SERVING: Final = a_side("demo-x7k2p")
SERVICES: Final = {
    "starting": (a_service(ready("Initializing")), "inProgress"),
    "ready": (a_service(READY, active=SERVING), "current"),
    "upgrading": (a_service(READY, UPGRADING, active=SERVING), "inProgress"),
    "paused": (
        a_service(READY, UPGRADING, a_condition("UpgradePaused"), active=SERVING),
        "inProgress",
    ),
    "stalled": (
        a_service(READY, UPGRADING, a_condition("UpgradeStalled"), active=SERVING),
        "failed",
    ),
    "aborted, rolling back": (
        a_service(
            READY,
            UPGRADING,
            a_condition("UpgradeAborted"),
            a_condition("RollbackInProgress"),
            active=SERVING,
        ),
        "inProgress",
    ),
    "aborted": (a_service(READY, a_condition("UpgradeAborted"), active=SERVING), "failed"),
    "pause over": (
        a_service(READY, a_condition("UpgradePaused", "False"), active=SERVING),
        "current",
    ),
    "timed out": (a_service(ready("InitializingTimeout")), "failed"),
    "invalid": (a_service(ready("ValidationFailed")), "failed"),
    "degraded": (a_service(ready("ZeroServeEndpoints"), active=SERVING), "inProgress"),
    "suspending": (
        a_service(ready("SuspendInProgress"), a_condition("Suspending"), suspend=True),
        "inProgress",
    ),
    "suspended": (
        a_service(ready("SuspendComplete"), a_condition("Suspended"), suspend=True),
        "current",
    ),
    "deleted": (deleted(a_service(READY, active=SERVING)), "inProgress"),
}


@pytest.mark.parametrize("name", SERVICES)
def test_argo_cd_and_the_command_line_agree_about_a_service(name: str) -> None:
    body, _ = SERVICES[name]
    found = phase.derive_phase(msgspec.json.decode(msgspec.json.encode(body), type=RayService))
    assert argo(body)[0] == ARGO_OF_PHASE[found.phase]


@pytest.mark.parametrize("name", SERVICES)
def test_flux_waits_for_a_service_or_fails(name: str) -> None:
    body, expected = SERVICES[name]
    assert flux(body) == expected


def test_the_message_names_the_reason() -> None:
    stalled = a_condition(
        "UpgradeStalled", reason="InsufficientCapacity", message="No progress for 10m"
    )
    assert argo(a_service(READY, UPGRADING, stalled)) == (
        "Degraded",
        "InsufficientCapacity: No progress for 10m",
    )


def test_a_generation_that_was_not_observed_is_waited_for() -> None:
    body = a_service(READY, active=SERVING)
    body["metadata"]["generation"] = 3
    assert (argo(body)[0], flux(body)) == ("Progressing", "inProgress")


def test_an_invalid_generation_which_is_never_observed_is_reported() -> None:
    """`status.compute.build_invalid_status` leaves the observed generation as it is."""
    body = a_service(ready("ValidationFailed"), active=SERVING)
    body["metadata"]["generation"] = 3
    assert (argo(body), flux(body)) == (("Degraded", "ValidationFailed: a message"), "inProgress")


@pytest.mark.parametrize(
    ("status", "in_argo", "in_flux"),
    [
        ("RUNNING", "Healthy", "current"),
        ("DEPLOYING", "Progressing", "inProgress"),
        ("DEPLOY_FAILED", "Degraded", "inProgress"),
        ("UNHEALTHY", "Degraded", "inProgress"),
    ],
)
def test_applications_count(status: str, in_argo: str, in_flux: str) -> None:
    side = a_side("demo-x7k2p")
    side["applicationStatuses"]["other"] = {"status": status, "message": "a message"}
    body = a_service(READY, active=side)
    assert (argo(body)[0], flux(body)) == (in_argo, in_flux)


def a_cluster(*conditions: Body, suspend: bool = False) -> Body:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "c", "generation": 2},
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions), "observedGeneration": 2},
    }


HEAD, PROVISIONED = a_condition("HeadPodReady"), a_condition("RayClusterProvisioned")
CLUSTERS: Final = {
    "starting": (
        a_cluster(a_condition("HeadPodReady", "False", reason="ContainersNotReady")),
        "Progressing",
        "inProgress",
    ),
    "ready": (a_cluster(HEAD, PROVISIONED), "Healthy", "current"),
    "head lost": (
        a_cluster(a_condition("HeadPodReady", "False"), PROVISIONED),
        "Progressing",
        "inProgress",
    ),
    "degraded": (a_cluster(HEAD, PROVISIONED, a_condition("ReplicaFailure")), "Degraded", "failed"),
    "suspending": (
        a_cluster(HEAD, PROVISIONED, a_condition("RayClusterSuspending"), suspend=True),
        "Progressing",
        "inProgress",
    ),
    "suspended": (
        a_cluster(
            a_condition("HeadPodReady", "False"),
            a_condition("RayClusterProvisioned", "False"),
            a_condition("RayClusterSuspended"),
            suspend=True,
        ),
        "Suspended",
        "current",
    ),
    "deleted": (deleted(a_cluster(HEAD, PROVISIONED)), "Progressing", "inProgress"),
    "new": (a_cluster(), "Progressing", "inProgress"),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_has_a_health(name: str) -> None:
    body, in_argo, in_flux = CLUSTERS[name]
    assert (argo(body)[0], flux(body)) == (in_argo, in_flux)


@pytest.mark.parametrize("kind", ["RayService", "RayCluster"])
def test_an_object_without_a_status_is_waited_for(kind: str) -> None:
    body: Body = {"kind": kind, "metadata": {"generation": 1}, "spec": {}, "status": {}}
    assert (argo({**body, "status": None})[0], flux(body)) == ("Progressing", "inProgress")
