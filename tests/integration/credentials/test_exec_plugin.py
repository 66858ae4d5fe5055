"""A kubeconfig with an exec plugin on a real API server: its token ends, and requests go on."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from common import errors
from common.kube import credentials
from common.kube.client import KubeClient
from common.kube.resources import ROLE_BINDING, SERVICE_ACCOUNT
from localcluster.control_plane import ControlPlane
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

API = "client.authentication.k8s.io/v1"
NAMESPACE = "default"


async def add_account(admin: KubeClient, name: str) -> str:
    """Create a ServiceAccount that may read, and return a token of it."""
    await admin.create(SERVICE_ACCOUNT, NAMESPACE, {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    await admin.create(ROLE_BINDING, NAMESPACE, binding)
    answer = await admin.request_token(NAMESPACE, name, seconds=3600)
    return str(msgspec.json.decode(answer)["status"]["token"])


def a_kubeconfig(folder: Path, admin: Path, status: Path) -> Path:
    document = yaml.safe_load(admin.read_text())
    plugin = {"apiVersion": API, "command": "cat", "args": [str(status)]}
    for user in document["users"]:
        user["user"] = {"exec": plugin}
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


def put(status: Path, token: str) -> None:
    body = {"apiVersion": API, "kind": "ExecCredential", "status": {"token": token}}
    status.write_text(json.dumps(body))


async def test_requests_go_on_when_the_token_of_a_plugin_ends(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "RETRY_SECONDS", 0.0)
    admin = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="admin")
    status = tmp_path / "status"
    first, second = [await add_account(admin, name) for name in ("plugin-one", "plugin-two")]
    put(status, first)
    file = a_kubeconfig(tmp_path, control_plane.kubeconfig, status)
    kube, other = [await KubeClient.connect(kubeconfig=file, user_agent="test") for _ in range(2)]
    await kube.list(SERVICE_ACCOUNT, NAMESPACE)
    await admin.delete(SERVICE_ACCOUNT, NAMESPACE, "plugin-one")

    async def is_refused() -> bool:
        try:
            await other.list(SERVICE_ACCOUNT, NAMESPACE)
        except errors.Unauthorized:
            return True
        return False

    await eventually_true(is_refused, what="the end of the first token")
    put(status, second)
    await kube.list(SERVICE_ACCOUNT, NAMESPACE)
    query = {"watch": "1", "timeoutSeconds": "5"}
    async with other.stream(SERVICE_ACCOUNT.path(NAMESPACE), query=query) as content:
        assert json.loads(await content.readline())["object"]["kind"] == "ServiceAccount"
    for client in (kube, other, admin):
        await client.close()
