"""The webhook of `versions/judge.py` beside the service, with its own key, and the questions it
got.
"""

import base64
import secrets
from pathlib import Path
from typing import Final

import msgspec
import yaml

from common.api.opaque import Json
from common.upgrade import webhook
from localcluster.demo.cluster_state import NAMESPACE

from .conftest import DEPLOY, Rig

SCRIPT: Final = Path(__file__).parent / "versions" / "judge.py"
NAME: Final = "judge"
PORT: Final = 8080
URL: Final = f"http://{NAME}.{NAMESPACE}.svc:{PORT}/upgrade"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the webhook got."""

    at: float
    is_signed: bool
    asked: str = ""
    """Name of the address that the webhook sent requests to: `preview` or `pending`."""
    result: str = ""
    text: str = ""
    weight: int = 0
    cluster: str = ""


async def start(rig: Rig) -> None:
    """Start the webhook, and wait until it listens."""
    text = await rig.kubectl.run("kustomize", str(DEPLOY / "demo/load"))
    load = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Pod")
    for each in _manifests(load):
        await rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(each).decode())
    await rig.kubectl.run(
        "wait", "-n", NAMESPACE, f"pod/{NAME}", "--for=condition=Ready", "--timeout=60s"
    )


async def asked(rig: Rig, cluster: str) -> list[Asked]:
    """Return the questions about a pending cluster, and those without a signature."""
    text = await rig.kubectl.run("logs", "-n", NAMESPACE, f"pod/{NAME}")
    found = [msgspec.json.decode(line, type=Asked) for line in text.splitlines()]
    return [each for each in found if not each.is_signed or each.cluster == cluster]


def _manifests(load: Json) -> list[Json]:
    """Return the objects of the webhook; its pod is the load's pod with another script."""
    key = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
    meta = {"name": NAME, "namespace": NAMESPACE}
    pod: Json = msgspec.json.decode(msgspec.json.encode(load))
    pod["metadata"] = {**meta, "labels": {"app": NAME}}
    container = pod["spec"]["containers"][0]
    reference = {"secretKeyRef": {"name": webhook.SECRET_NAME, "key": webhook.SECRET_KEY}}
    container.update(
        command=["python", "/load/judge.py"],
        args=[],
        env=[{"name": "KEY", "valueFrom": reference}],
        readinessProbe={"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    )
    pod["spec"]["volumes"][0]["configMap"]["name"] = NAME
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": webhook.SECRET_NAME, "namespace": NAMESPACE},
            "stringData": {webhook.SECRET_KEY: key},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {SCRIPT.name: SCRIPT.read_text()},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": {"app": NAME}, "ports": [{"port": PORT}]},
        },
        pod,
    ]
