"""Mutual TLS on real Ray: cert-manager's own controllers issue the certificates of a RayService that is upgraded under load.

cert-manager runs as a process beside the node. Its CA is renewed under load, a worker with a certificate of afterwards joins a head with
one of before, and an upgrade makes a cluster with a CA of its own.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.api.opaque import Json
from localcluster import binaries
from localcluster.demo.cluster_state import NAMESPACE, DemoState
from support.servers.process import process
from support.servers.programs import prepared
from support.waiting import eventually_true

from .conftest import Rig
from .greeter import Greeter, Options, expect_no_failure, serving_in_steps, settle, show

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.ondemand]

PROBE: Final = """\
import os, socket, ssl
def asks(has_certificate):
    context = ssl.create_default_context(cafile=os.environ["RAY_TLS_CA_CERT"])
    context.set_alpn_protocols(["h2"])
    if has_certificate:
        context.load_cert_chain(os.environ["RAY_TLS_SERVER_CERT"], os.environ["RAY_TLS_SERVER_KEY"])
    host = socket.gethostbyname(socket.gethostname())
    try:
        with socket.create_connection((host, 6379)) as plain, context.wrap_socket(plain, server_hostname=host) as wrapped:
            wrapped.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            return bool(wrapped.recv(1))
    except ssl.SSLError as problem:
        return problem.reason
def asks_plainly():
    with socket.create_connection((socket.gethostbyname(socket.gethostname()), 6379)) as plain:
        plain.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        try:
            return plain.recv(9)[3:4] == b"\\x04"
        except ConnectionError:
            return False
print(asks(True), asks(False), asks_plainly())
"""
"""Whether the GCS answers a peer with the cluster's certificate, one without, and one without TLS."""


class Secured(Greeter):
    """A service with mutual TLS, of two workers with one replica each."""

    def manifest(self, version: int) -> Json:
        """Return the manifest with TLS."""
        body = super().manifest(version)
        body["spec"]["rayClusterConfig"]["tlsOptions"] = {"enabled": True}
        return body


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cert_manager(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[None]:
    """Run cert-manager's controllers with its own definitions."""
    definitions = str(prepared(binaries.CERT_MANAGER_CRDS))
    await rig.kubectl.run("apply", "--server-side", "-f", definitions)
    await rig.kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", definitions)
    command = [str(prepared(binaries.CERT_MANAGER)), f"--kubeconfig={rig.kubectl.kubeconfig}"]
    async with process(command, tmp_path_factory.mktemp("cert-manager") / "log"):
        yield


async def read(rig: Rig, kind: str, name: str) -> Any:
    return msgspec.json.decode(
        await rig.kubectl.run("get", kind, name, "-n", NAMESPACE, "-o", "json")
    )


async def data(rig: Rig, certificate: str) -> dict[str, str]:
    """Return what the Secret of a Certificate holds, in base64."""
    body = await read(rig, "certificate", certificate)
    return (await read(rig, "secret", body["spec"]["secretName"]))["data"]


async def renew(rig: Rig, certificate: str) -> None:
    """Have cert-manager issue a certificate anew, as its command line does, and wait for it."""
    before = await data(rig, certificate)
    body = await read(rig, "certificate", certificate)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251  (a server reads it)
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "lastTransitionTime": now,
    }
    conditions = [*body["status"]["conditions"], condition | {"message": "renewed by hand"}]
    patch = msgspec.json.encode({"status": {"conditions": conditions}}).decode()
    where = ("-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", patch)
    await rig.kubectl.run("patch", "certificate", certificate, *where)

    async def is_another() -> bool:
        return (await data(rig, certificate))["tls.crt"] != before["tls.crt"]

    await eventually_true(is_another, within=60, what=f"another certificate for {certificate}")
    if certificate.startswith("ray-ca"):
        assert (await data(rig, certificate))["tls.key"] == before["tls.key"], (
            "the CA keeps its key"
        )


async def probe(rig: Rig, cluster: str) -> str:
    """Return the answers of the head's GCS."""
    selector = f"ray.io/cluster={cluster},ray.io/node-type=head"
    names = await rig.kubectl.run("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "name")
    command = (
        "exec",
        "-n",
        NAMESPACE,
        names.strip(),
        "-c",
        "ray-head",
        "--",
        "python",
        "-c",
        PROBE,
    )
    return (await rig.kubectl.run(*command)).strip()


def workers_of(state: DemoState) -> dict[str, bool]:
    """Return whether each worker of the active cluster is ready, by name."""
    wanted = {"ray.io/cluster": state.active, "ray.io/node-type": "worker"}.items()
    return {
        each.metadata.name: each.is_running_and_ready
        for each in state.pods
        if wanted <= each.metadata.labels.items()
    }


async def test_a_renewed_authority_and_an_upgrade_under_load_cost_no_request(
    rig: Rig, cert_manager: None
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with (
        serving_in_steps(rig, Options(workers=2), kind=Secured) as service,
        asyncio.timeout(800),
    ):
        show(f"two workers with TLS serve after {loop.time() - began:.0f} s")
        old = (await service.state()).active
        answers_of_gcs = await probe(rig, old)
        show(answers_of_gcs)
        assert answers_of_gcs.split()[0] == "True"
        assert "True" not in answers_of_gcs.split()[1:]
        async with service.under_load() as answers:
            await settle(answers)
            for name in (
                f"ray-ca-certificate-{old}",
                f"ray-head-cert-{old}",
                f"ray-worker-cert-{old}",
            ):
                await renew(rig, name)
            await settle(answers)
            renewed = len(answers)
            await service.upgrade()
            await service.wait_for_promotion(old, within=500)
            await settle(answers)
        expect_no_failure(service, answers, at_least=1000)
        show(
            f"{renewed} requests at the renewal and {len(answers) - renewed} at the upgrade, none failed"
        )

        state = await service.state()
        new, (lost, *_) = state.active, sorted(workers_of(state))
        assert await probe(rig, new) == answers_of_gcs
        with pytest.raises(errors.Rejected, match="NotFound"):
            await read(rig, "certificate", f"ray-ca-certificate-{old}")
        await renew(rig, f"ray-ca-certificate-{new}")
        await rig.kubectl.run("delete", "pod", lost, "-n", NAMESPACE)
        await service.wait(
            "another worker of the renewed authority",
            lambda state: (
                lost not in workers_of(state) and [*workers_of(state).values()] == [True, True]
            ),
            within=300,
        )
