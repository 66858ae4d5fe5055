"""The chart, installed and upgraded by real Helm on a real API server.

No node runs here, so the Job `nats-streams` never finishes, as with an image that cannot be pulled.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
import yaml

from localcluster import binaries, processes
from localcluster.control_plane import ControlPlane
from support.manifests import DEPLOY, NAMESPACE, Document
from support.servers.programs import prepared

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long_running,
    pytest.mark.asyncio(loop_scope="module"),
]

CHART = str(DEPLOY / "helm" / "raybus")
CONSTRAINTS = "securitycontextconstraints.security.openshift.io"
REGISTRY = {"image.registry": "registry.example.com/raybus"}
FIXED = {
    *("priorityClass.value", "nats.storage.size", "nats.storage.className"),
    # The kinds of the Prometheus operator are not on this API server.
    *("monitoring.prometheusOperator", "monitoring.labels"),
}
REFUSED = {
    "priorityClass.value=7": "may not be changed in an update",
    "nats.storage.size=1Gi": "updates to statefulset spec",
    "nats.storage.className=fast": "updates to statefulset spec",
}
"""The answers of the API server to changes of fixed values."""
WHOLE = {
    *("image.digests", "resources", "nodeSelector", "nats.resources"),
    *("configuration.defaultPodLabels", "configuration.defaultPodAnnotations", "monitoring.labels"),
}
"""Values that are maps with keys of the user."""
CHANGED: Document = {
    "image": {
        "registry": "registry.example.com/other",
        "tag": "2",
        "digests": {"nats": "sha256:" + "0" * 64},
        "pullPolicy": "Always",
    },
    "imagePullSecrets": [{"name": "key"}],
    "replicas": {
        "watcher": 3,
        "clusterReconciler": 4,
        "serviceReconciler": 5,
        "trafficManager": 6,
        "jobReconciler": 7,
    },
    "resources": {"requests": {"cpu": "1"}},
    "nodeSelector": {"pool": "control"},
    "tolerations": [{"key": "control", "operator": "Exists"}],
    "priorityClass": {"create": False, "name": ""},
    "watchNamespace": ["default"],
    "kuberayNamespace": "ray-system",
    "featureGates": [{"name": "RayClusterMTLS", "enabled": True}],
    "reconcileConcurrency": 9,
    "logLevel": "DEBUG",
    "clusterDomain": "example.internal",
    "gateTargets": ["https://*.example.com"],
    "batchScheduler": {"name": "volcano"},
    "configuration": {
        "headSidecarContainers": [{"name": "head", "image": "example.com/head"}],
        "workerSidecarContainers": [{"name": "worker", "image": "example.com/worker"}],
        "defaultContainerEnvs": [{"name": "A", "value": "b"}],
        "defaultPodLabels": {"a": "b"},
        "defaultPodAnnotations": {"a": "b"},
    },
    "crds": {"check": False},
    "networkPolicies": {"enabled": False},
    "openshift": True,
    "nats": {
        "enabled": False,
        "url": "tls://nats.example.com:4333",
        "port": 4333,
        "servers": 1,
        "maxStore": "900MB",
        "subscribers": "audit",
        "streams": False,
        "resources": {"requests": {"cpu": "1"}},
    },
    "monitoring": {"enabled": True},
}
Helm = Callable[..., Awaitable[processes.Finished]]
Kubectl = Callable[..., Awaitable[str]]
Jobs = Callable[[], Awaitable[list[Document]]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ControlPlane]:
    """Start a control plane without a node, with the namespace of the release."""
    work = tmp_path_factory.mktemp("cluster")
    async with ControlPlane.started(work, crds=DEPLOY / "crds") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def helm(plane: ControlPlane) -> AsyncGenerator[Helm]:
    """Run Helm as the administrator; afterwards uninstall the release."""

    async def run(verb: str, *arguments: str) -> processes.Finished:
        place = ("--kubeconfig", str(plane.kubeconfig), "--namespace", NAMESPACE)
        return await processes.run(
            [str(prepared(binaries.HELM)), verb, "raybus", *place, *arguments]
        )

    yield run
    await run("uninstall", "--wait", "--ignore-not-found")


@pytest.fixture
def kubectl(plane: ControlPlane, kubectl_binary: Path) -> Kubectl:
    """Run kubectl as the administrator."""

    async def run(*arguments: str) -> str:
        place = ("--kubeconfig", str(plane.kubeconfig))
        done = await processes.run([str(kubectl_binary), *place, *arguments])
        assert done.code == 0, done.errors
        return done.output

    return run


@pytest.fixture
def jobs(kubectl: Kubectl) -> Jobs:
    """Return the Jobs of the release's namespace that are not being deleted."""

    async def run() -> list[Document]:
        output = await kubectl("-n", NAMESPACE, "get", "jobs", "-o", "json")
        found: list[Document] = json.loads(output)["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    return run


@pytest.mark.parametrize("server_side", ["true", "false"])
async def test_an_upgrade_replaces_an_unfinished_job(
    server_side: str, helm: Helm, jobs: Jobs
) -> None:
    async def apply(verb: str, **values: str) -> Document:
        options = ("--create-namespace", f"--server-side={server_side}", *assign(values))
        done = await helm(verb, CHART, *options)
        assert done.code == 0, done.errors
        (job,) = await jobs()
        assert "completionTime" not in job["status"]
        return job

    first = await apply("install", **REGISTRY)
    second = await apply("upgrade", **REGISTRY, **{"image.tag": "2"})
    third = await apply("upgrade", **REGISTRY, **{"image.tag": "2", "nats.subscribers": "audit"})
    assert image(first) == "registry.example.com/raybus/watcher:0.1.0"
    assert image(second) == image(third) == "registry.example.com/raybus/watcher:2"
    again = await apply("upgrade", **REGISTRY, **{"image.tag": "2", "nats.subscribers": "audit"})
    uids = [job["metadata"]["uid"] for job in (first, second, third, again)]
    assert len(set(uids)) == 3
    assert uids[2] == uids[3]


async def test_an_upgrade_may_change_every_value_that_is_not_documented_to_be_fixed(
    helm: Helm, kubectl: Kubectl, tmp_path: Path
) -> None:
    defaults = yaml.safe_load((Path(CHART) / "values.yaml").read_text())
    assert leaves(CHANGED) | FIXED == leaves(defaults)
    assert all(at(CHANGED, path) != at(defaults, path) for path in leaves(CHANGED))
    await kubectl("create", "namespace", CHANGED["kuberayNamespace"])
    done = await helm("install", CHART, "--create-namespace", *assign(REGISTRY))
    assert done.code == 0, done.errors
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(CHANGED))
    done = await helm("upgrade", CHART, f"--values={tmp_path / 'values.yaml'}")
    assert done.code == 0, done.errors


async def test_values_that_are_documented_to_be_fixed_are(helm: Helm) -> None:
    done = await helm("install", CHART, "--create-namespace", *assign(REGISTRY))
    assert done.code == 0, done.errors
    for change, refusal in REFUSED.items():
        assert change.partition("=")[0] in FIXED
        done = await helm("upgrade", CHART, *assign(REGISTRY), f"--set={change}")
        assert done.code != 0, change
        assert refusal in done.errors


def leaves(values: Document, prefix: str = "") -> set[str]:
    """Return the paths of all values, without those that only group others."""
    found: set[str] = set()
    for name, value in values.items():
        path = f"{prefix}{name}"
        is_group = isinstance(value, dict) and path not in WHOLE
        found |= leaves(cast("Document", value), f"{path}.") if is_group else {path}
    return found


def at(values: Document, path: str) -> object:
    found: Any = values
    for name in path.split("."):
        found = found[name]
    return found


async def test_an_installation_without_a_registry_names_the_value_and_creates_nothing(
    helm: Helm, jobs: Jobs
) -> None:
    done = await helm("install", CHART, "--create-namespace")
    assert done.code != 0
    assert "image.registry: set the registry" in done.errors
    assert await jobs() == []


async def test_on_openshift_helm_names_the_value_that_its_constraints_need(
    helm: Helm, kubectl: Kubectl
) -> None:
    await kubectl("apply", "-f", str(Path(__file__).with_name("openshift_crd.yaml")))
    await kubectl("wait", "--for=condition=Established", f"crd/{CONSTRAINTS}", "--timeout=60s")
    printed: list[bool] = []
    for chosen in ("false", "true"):
        values = (*assign(REGISTRY), f"--set=openshift={chosen}")
        done = await helm("install", CHART, "--create-namespace", "--dry-run=server", *values)
        assert done.code == 0, done.errors
        printed.append("set openshift=true" in done.output.rpartition("NOTES:")[2])
    assert printed == [True, False]


def assign(values: Mapping[str, str]) -> list[str]:
    return [f"--set-string={name}={value}" for name, value in values.items()]


def image(job: Document) -> str:
    container: Document = job["spec"]["template"]["spec"]["containers"][0]
    return container["image"]
