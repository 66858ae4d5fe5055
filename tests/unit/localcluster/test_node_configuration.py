"""The configuration of the node's programs."""

from pathlib import Path

import pytest
import yaml

from localcluster import binaries, components
from localcluster.binaries import Binaries
from localcluster.components import ControlPlaneSpec, Ports
from localcluster.errors import ClusterError, MisuseError
from localcluster.images import debian
from localcluster.kubeconfig import ClusterPki
from localcluster.node import container_runtime, kubelet, manifests


def _spec(*, node: bool = True, host: str = "10.200.0.1") -> ControlPlaneSpec:
    names = ["etcd", "kube-apiserver", "kube-controller-manager", "kubelet", "kube-proxy"]
    return ControlPlaneSpec(
        binaries=Binaries(paths={name: Path("/bin") / name for name in names}),
        work=Path("/node/work"),
        pki=ClusterPki(folder=Path("/node/work/pki"), tokens={}),
        host=host,
        ports=Ports(api=1, etcd=2, etcd_peer=3, controller_manager=4, scheduler=5, kwok=6),
        node_authorizer=node,
    )


def test_the_api_server_enforces_rbac_and_checks_kubelets() -> None:
    flags = components.build_api_server_argv(_spec())
    assert "--authorization-mode=Node,RBAC" in flags
    assert "--kubelet-certificate-authority=/node/work/pki/ca.crt" in flags
    assert not [flag for flag in flags if "insecure" in flag or "disable-admission" in flag]


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("::1", True), ("10.200.0.1", False)]
)
def test_an_api_server_on_loopback_does_not_advertise_its_address(
    host: str, expected: bool
) -> None:
    flags = components.build_api_server_argv(_spec(host=host))
    assert ("--endpoint-reconciler-type=none" in flags) is expected


def test_the_kubelet_asks_the_api_server_for_authorization() -> None:
    document = yaml.safe_load(kubelet.format_configuration(_spec(), name="mine"))
    assert document["cgroupRoot"] == "/mine"
    assert document["authentication"]["anonymous"] == {"enabled": False}
    assert document["authorization"] == {"mode": "Webhook"}


def test_the_gateway_runs_local_images_only() -> None:
    text = yaml.safe_dump_all(manifests.build_gateway())
    parts = {part.strip("\"'") for part in text.replace("\\n", " ").split()}
    images = {part for part in parts if part.startswith(("docker.io/", "registry.invalid/"))}
    assert images == {manifests.GATEWAY_IMAGE, manifests.ENVOY_IMAGE}


def test_too_little_disk_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"GiB free, .* need 1000000 GiB: free some") as caught:
        binaries.check_disk(tmp_path / "not" / "yet", 1_000_000, "images")
    assert "\n" not in str(caught.value)


def test_a_package_is_missing_when_none_of_its_programs_is_there() -> None:
    packages = {"shell": ("no-such-program", "sh"), "other": ("no-such-program", "/no/such/file")}
    assert debian.list_missing(packages) == ["other"]


def test_what_is_no_image_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_text("no tar")
    with pytest.raises(MisuseError, match="is not an image archive"):
        container_runtime.read_image_file(path)
