"""Assigns pods to a node that no scheduler assigns: their scheduler does not run here, or they
request resources that the node lacks.
"""

import asyncio
from contextlib import suppress

import msgspec

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import POD

NODE = "kwok-0"


async def place(kube: KubeClient, namespace: str) -> None:
    """Assign pods until cancelled."""
    while True:
        with suppress(errors.RaybusError):  # pods come and go
            for pod in msgspec.json.decode(await kube.list(POD, namespace))["items"]:
                spec, name = pod["spec"], pod["metadata"]["name"]
                if not spec.get("nodeName"):
                    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
                    await kube.request("POST", f"{POD.path(namespace, name)}/binding", body=body)
        await asyncio.sleep(0.2)
