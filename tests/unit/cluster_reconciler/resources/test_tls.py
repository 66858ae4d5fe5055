"""Mutual TLS in pods (spec raycluster §11.15), and the script that waits for a certificate with the pod's address, run by a real shell."""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import head_pod
from common.api.opaque import Body, Json
from common.feature_gates import BETA, FeatureGate
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import containers_of, env_of, head_of, worker_of

ON = Config(gates=BETA | {FeatureGate.MTLS})
WAIT = "wait-for-tls-ip-san"
MOUNT: Json = {"name": "ray-tls", "mountPath": "/etc/ray/tls", "readOnly": True}
ENV = {
    "RAY_USE_TLS": "1",
    "RAY_TLS_SERVER_CERT": "/etc/ray/tls/tls.crt",
    "RAY_TLS_SERVER_KEY": "/etc/ray/tls/tls.key",
    "RAY_TLS_CA_CERT": "/etc/ray/tls/ca.crt",
}


def secured(**fields: Any) -> tuple[Body, Body]:
    """Build head and worker of a cluster, each with a container and an init container of the user
    beside ours.
    """
    template = a_template(
        a_container("ray", image_pull_policy="Always", security_context={"runAsUser": 1000}),
        a_container("user"),
        init_containers=[a_container("user-init")],
        **fields,
    )
    cluster = a_ray_cluster(
        head=a_head(template=template),
        groups=[a_group(template=template)],
        enable_in_tree_autoscaling=True,
        tls_options={"enabled": True},
    )
    return head_of(cluster, ON), worker_of(cluster, ON)


def tls_of(container: Json) -> tuple[bool, bool]:
    """Return whether a container has the environment variables and the mount of TLS."""
    return ENV.items() <= env_of(container).items(), MOUNT in container.get("volumeMounts", [])


def test_which_containers_use_tls() -> None:
    head, worker = secured()
    found = {
        f"{pod['metadata']['labels']['ray.io/node-type']}/{name}": tls_of(each)
        for pod in (head, worker)
        for name, each in (containers_of(pod) | containers_of(pod, "initContainers")).items()
    }
    yes, no, waits = (True, True), (False, False), (False, True)
    assert found == {
        "head/ray": yes,
        "head/user": no,
        "head/autoscaler": yes,
        f"head/{WAIT}": waits,
        "head/user-init": no,
        "worker/ray": yes,
        "worker/user": no,
        f"worker/{WAIT}": waits,
        "worker/user-init": no,
        "worker/wait-gcs-ready": yes,
    }


@pytest.mark.acceptance("raycluster", 120)
def test_head_and_workers_wait_first_of_all_and_have_their_own_secret() -> None:
    for pod, secret in zip(secured(), ("ray-head-secret-c", "ray-worker-secret-c"), strict=True):
        first = pod["spec"]["initContainers"][0]
        assert (first["name"], first["command"], first["imagePullPolicy"]) == (
            WAIT,
            ["sh", "-c"],
            "Always",
        )
        assert first["securityContext"] == {"runAsUser": 1000}
        assert (
            first["resources"]["limits"]
            == {"cpu": "50m", "memory": "64Mi"}
            == first["resources"]["requests"]
        )
        assert {"name": "ray-tls", "secret": {"secretName": secret}} in pod["spec"]["volumes"]


@pytest.mark.parametrize("options", [None, {}, {"enabled": False}])
def test_without_tls_a_pod_has_nothing_of_it(options: Json | None) -> None:
    cluster = a_ray_cluster() if options is None else a_ray_cluster(tls_options=options)
    assert head_of(cluster, ON) == head_of(a_ray_cluster(), ON)
    assert worker_of(cluster, ON) == worker_of(a_ray_cluster(), ON)


def test_a_volume_of_the_users_own_stays() -> None:
    own: Json = {"name": "ray-tls", "secret": {"secretName": "mine"}}
    head, _ = secured(volumes=[own])
    assert [each for each in head["spec"]["volumes"] if each["name"] == "ray-tls"] == [own]


def test_the_job_that_cleans_redis_does_not_wait() -> None:
    cluster = a_ray_cluster(
        tls_options={"enabled": True}, gcs_fault_tolerance_options={"redisAddress": "redis:6379"}
    )
    pod = head_pod.build_cleanup_job(cluster, ON)["spec"]["template"]
    assert containers_of(pod, "initContainers") == {}
    assert tls_of(containers_of(pod)["ray-head"]) == (True, True)


# --- the script ----------------------------------------------------------------------------------------------------------


def certificate(*addresses: str) -> bytes:
    """Return a certificate that names these addresses."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(each)) for each in addresses])
    builder = (
        x509.CertificateBuilder().issuer_name(name).subject_name(name).public_key(key.public_key())
    )
    builder = (
        builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    )
    return (
        builder.add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def run(
    folder: Path, text: bytes, address: str, path: Sequence[str] = ("/usr/bin", "/bin")
) -> tuple[int | None, str]:
    """Run the script on a certificate; return its exit code (None while it waits) and its output."""
    (folder / "tls.crt").write_bytes(text)
    script = containers_of(secured()[0], "initContainers")[WAIT]["args"][0].replace(
        "/etc/ray/tls", str(folder)
    )
    environment = {"POD_IP": address, "PATH": ":".join(path)}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=1,
            check=False,
        )
    except subprocess.TimeoutExpired as waiting:
        return None, (waiting.stdout or b"").decode()
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1", "fd00:0:0:0:0:0:0:1"])
def test_it_ends_when_the_certificate_names_the_address(tmp_path: Path, address: str) -> None:
    assert run(tmp_path, certificate("127.0.0.1", "10.0.0.1", "fd00::1"), address) == (0, "")


@pytest.mark.parametrize(
    "text",
    [certificate("127.0.0.1"), certificate("10.0.0.11", "110.0.0.1"), b"", b"no certificate"],
)
def test_it_waits_without_the_address(tmp_path: Path, text: bytes) -> None:
    code, output = run(tmp_path, text, "10.0.0.1")
    assert (code, output) == (None, "the certificate does not name 10.0.0.1 yet\n")


def test_it_fails_without_openssl(tmp_path: Path) -> None:
    code, output = run(tmp_path, certificate("10.0.0.1"), "10.0.0.1", path=[str(tmp_path)])
    assert code == 1
    assert "no openssl" in output
