"""Acts as cert-manager: writes the Secret of each Certificate, then sets it to ready.

The Secrets contain no real certificates.
"""

import asyncio
import base64
from contextlib import suppress
from typing import Final

import msgspec

from common import errors
from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import CERTIFICATE, SECRET

NOT_AFTER: Final = "2099-01-01T00:00:00Z"


async def certify(kube: KubeClient, namespace: str) -> None:
    """Issue certificates until cancelled."""
    while True:
        with suppress(errors.RaybusError):  # they come and go
            for each in msgspec.json.decode(await kube.list(CERTIFICATE, namespace))["items"]:
                if not is_ready(each):
                    await issue(kube, each)
        await asyncio.sleep(0.1)


def is_ready(certificate: Body) -> bool:
    """Return whether a certificate was issued for its current spec."""
    conditions: list[Body] = certificate.get("status", {}).get("conditions", [])
    generation = certificate["metadata"]["generation"]
    return any(
        each["type"] == "Ready" and each["observedGeneration"] == generation for each in conditions
    )


async def issue(kube: KubeClient, certificate: Body, *, revision: int = 0) -> None:
    """Write the Secret of a certificate and set it to ready; another `revision` renews it."""
    meta, name = certificate["metadata"], certificate["spec"]["secretName"]
    await write_secret(kube, certificate, revision=revision or meta["generation"])
    ready = {
        "type": "Ready",
        "status": "True",
        "observedGeneration": meta["generation"],
        "reason": "Ready",
    }
    ready |= {
        "message": f"Certificate is up to date: {name}",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {
        "conditions": [ready],
        "notAfter": NOT_AFTER,
        "revision": revision or meta["generation"],
    }
    await kube.replace(
        CERTIFICATE, meta["namespace"], {**certificate, "status": status}, subresource="status"
    )


async def write_secret(kube: KubeClient, certificate: Body, *, revision: int) -> None:
    """Write only the Secret of a certificate; metadata that others have written is kept."""
    meta, name = certificate["metadata"], certificate["spec"]["secretName"]
    text = base64.b64encode(f"{meta['name']} {revision}".encode()).decode()
    secret: Body = {
        "metadata": {
            "name": name,
            "labels": {"controller.cert-manager.io/fao": "true"},
            "annotations": {"cert-manager.io/certificate-name": meta["name"]},
        },
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": text, "tls.key": text, "ca.crt": text},
    }
    try:
        await kube.create(SECRET, meta["namespace"], secret)
    except errors.AlreadyExists:
        known: Body = msgspec.json.decode(await kube.get(SECRET, meta["namespace"], name))
        await kube.replace(SECRET, meta["namespace"], {**known, "data": secret["data"]})
