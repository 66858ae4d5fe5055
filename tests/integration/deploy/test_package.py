"""The chart as one file, as `helm package` makes it, and what Helm makes of this file."""

import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from localcluster import binaries
from raybus_dev import release
from support import manifests, openshift
from support.manifests import DEPLOY, ROOT, SERVICES, Document
from support.servers.programs import prepared

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

CHART = DEPLOY / "helm" / "raybus"
REGISTRY = ("--set", "image.registry=reg.test/team")
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def helm() -> Helm:
    """Run Helm."""
    program = str(prepared(binaries.HELM))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the packaged chart."""
    return release.package_chart(prepared(binaries.HELM), ROOT, tmp_path_factory.mktemp("chart"))


def render(helm: Helm, chart: Path, *options: str) -> str:
    done = helm("template", "raybus", str(chart), "--namespace", "raybus", *REGISTRY, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_a_file_with_every_file_of_the_chart_and_no_link(package: Path) -> None:
    with tarfile.open(package) as archive:
        members = {member.name: member for member in archive.getmembers()}
        crd = archive.extractfile("raybus/crds/ray.io_rayjobs.yaml")
        assert crd is not None
        assert crd.read() == (DEPLOY / "crds" / "ray.io_rayjobs.yaml").read_bytes()
    assert all(member.isreg() for member in members.values())
    written = {path.relative_to(CHART.parent).as_posix() for path in CHART.rglob("*.*")}
    assert members.keys() == written


def test_packaged_again_it_has_the_same_bytes(package: Path, tmp_path: Path) -> None:
    again = release.package_chart(prepared(binaries.HELM), ROOT, tmp_path)
    assert again.read_bytes() == package.read_bytes()


def test_it_passes_lint_without_a_warning(package: Path, helm: Helm) -> None:
    done = helm("lint", "--strict", str(package), *REGISTRY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_it_yields_what_the_folder_yields(package: Path, helm: Helm) -> None:
    assert render(helm, package, "--include-crds") == render(helm, CHART, "--include-crds")


def test_its_page_is_shown_by_helm(package: Path, helm: Helm) -> None:
    shown = helm("show", "readme", str(package)).stdout
    assert (CHART / "README.md").read_text().strip() in shown


def test_a_value_that_the_schema_refuses_is_named(package: Path, helm: Helm) -> None:
    for assignment, named in {
        "replica.watcher=1": "replica",
        "image.registry=https://reg.test": "/image/registry",
        "nats.storage.size=large": "/nats/storage/size",
        "crds.chek=false": "chek",
    }.items():
        done = helm("template", "raybus", str(package), *REGISTRY, "--set", assignment)
        assert done.returncode != 0, assignment
        assert named in done.stderr, done.stderr


def hooks(helm: Helm, *options: str) -> list[Document]:
    """Return the objects of `helm test`."""
    documents = manifests.parse(render(helm, CHART, *options))
    return [each for each in documents if "helm.sh/hook" in each["metadata"].get("annotations", {})]


def test_the_test_asks_each_service_and_nats_without_a_token(helm: Helm) -> None:
    found = hooks(helm)
    pod = manifests.named(found, "Pod", "raybus-test")["spec"]
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["image"] == "reg.test/team/watcher:0.1.0"
    assert set(container["command"][3:]) == {
        *(f"http://{name}:8080/readyz" for name in SERVICES),
        "nats://nats:4222",
    }
    assert manifests.of_kind(found, "NetworkPolicy")


def test_the_test_leaves_out_what_the_values_leave_out(helm: Helm) -> None:
    values = ("--set", "replicas.jobReconciler=0,nats.enabled=false,networkPolicies.enabled=false")
    found = hooks(helm, *values, "--set", "nats.url=tls://nats.example.com:4222")
    (pod,) = found
    command = pod["spec"]["containers"][0]["command"]
    assert len(command) == 3 + len(SERVICES) - 1
    assert not [each for each in command if "job-reconciler" in each or each.startswith("nats")]


def test_openshift_admits_the_pod_of_the_test(helm: Helm) -> None:
    pod = manifests.named(hooks(helm, "--set", "openshift=true"), "Pod", "raybus-test")
    assert openshift.violations(pod["spec"]) == []


def test_a_release_lists_its_images_for_artifact_hub(helm: Helm, tmp_path: Path) -> None:
    images = {"nats": "reg.test/team/nats@sha256:" + "0" * 64}
    package = release.package_chart(prepared(binaries.HELM), ROOT, tmp_path, images)
    chart = yaml.safe_load(helm("show", "chart", str(package)).stdout)
    listed = yaml.safe_load(chart["annotations"][release.IMAGES_ANNOTATION])
    assert listed == [{"name": "nats", "image": images["nats"]}]
