"""Envoy Gateway with Envoy, in its mode for hosts: it reads the API server and starts Envoy itself.

It reports a Gateway as programmed only if the Gateway has a Service with an address and a
Deployment with a pod, which it makes itself where it runs in a pod. Here they exist beforehand, and
the pod is simulated.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import yaml

from common.api.opaque import Json
from localcluster import binaries, processes, settings
from localcluster.api import Document
from support.gateways.program import (
    GatewayGround,
    GatewayProgram,
    build_class,
    children,
    find_envoy,
)
from support.servers.programs import prepared

ENVOY_VERSION: Final = "1.40.0"
SYSTEM: Final = "envoy-gateway-system"
WITH_CERTIFICATES: Final = """set -eu
root=$1 certificates=$2
shift 2
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
for path in /*; do
  if [ -L "$path" ]; then cp -a "$path" "$root$path"
  elif [ -d "$path" ]; then mkdir "$root$path"; mount --rbind "$path" "$root$path"
  fi
done
mkdir "$root/certs"
cp "$certificates"/* "$root/certs"
exec chroot "$root" "$@"
"""
"""Script that runs a command with a folder as `/certs`, where Envoy Gateway expects its own
certificate. Only this command sees the folder.
"""


@asynccontextmanager
async def _start(program: GatewayProgram, ground: GatewayGround) -> AsyncGenerator[None]:
    command, configuration = str(prepared("envoy-gateway")), ground.work / "envoy-gateway.yaml"
    homes = {
        name: str(ground.work / name)
        for name in ("configHome", "dataHome", "stateHome", "runtimeDir")
    }
    configuration.write_text(yaml.safe_dump(_build_configuration(program, homes)))
    # Envoy Gateway runs the Envoy of this folder, and would download any other version.
    folder = ground.work / "dataHome" / "envoy-versions" / ENVOY_VERSION / "bin"
    folder.mkdir(parents=True)
    (folder / "envoy").symlink_to(find_envoy())
    async with ground.control_plane.api() as api:
        await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        await api.apply(_build_proxy(program))
        for document in _build_infrastructure(ground):
            await api.apply(document)
        parameters = {
            "group": "gateway.envoyproxy.io",
            "kind": "EnvoyProxy",
            "name": program.name,
            "namespace": SYSTEM,
        }
        gateway_class = build_class(program.name, program.controller_name)
        gateway_class["spec"]["parametersRef"] = parameters
        await api.apply(gateway_class)
    await processes.run_checked(
        "making the gateway's certificates",
        [command, "certgen", "--local", f"--config-home={homes['configHome']}"],
    )
    root = ground.work / "root"
    root.mkdir()
    async with children(ground) as started:
        started.start(
            "envoy-gateway",
            [
                *("unshare", "--mount", "--", "sh", "-c", WITH_CERTIFICATES, "sh", str(root)),
                str(ground.work / "configHome" / "certs" / "envoy-gateway"),
                *(command, "server", f"--config-path={configuration}"),
            ],
            {
                "KUBECONFIG": str(ground.control_plane.kubeconfig),
                "ENVOY_GATEWAY_NAMESPACE": SYSTEM,
            },
        )
        yield


def _build_configuration(program: GatewayProgram, homes: dict[str, str]) -> Json:
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": program.controller_name},
        "provider": {
            "type": "Custom",
            "custom": {
                "resource": {
                    "type": "Kubernetes",
                    "kubernetes": {"leaderElection": {"disable": True}},
                },
                "infrastructure": {"type": "Host", "host": homes},
            },
        },
    }


def _build_infrastructure(ground: GatewayGround) -> list[Document]:
    """Return the Service and the Deployment of the Gateway."""
    prefix, pod = "gateway.envoyproxy.io/owning-gateway", {"app": ground.gateway}
    metadata = {
        "name": ground.gateway,
        "namespace": SYSTEM,
        "labels": {f"{prefix}-name": ground.gateway, f"{prefix}-namespace": ground.namespace},
    }
    container = {"name": "envoy", "image": "envoy"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": pod, "ports": [{"name": "http", "port": 80}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": pod},
                "template": {"metadata": {"labels": pod}, "spec": {"containers": [container]}},
            },
        },
    ]


def _build_proxy(program: GatewayProgram) -> Document:
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyProxy",
        "metadata": {"name": program.name, "namespace": SYSTEM},
        "spec": {"provider": {"type": "Host", "host": {"envoyVersion": ENVOY_VERSION}}},
    }


ENVOY_GATEWAY: Final = GatewayProgram(
    name="envoy-gateway",
    version=settings.ENVOY_GATEWAY,
    data_plane="Envoy",
    programs=binaries.GATEWAY,
    crds=(binaries.GATEWAY_CRDS,),
    controller_name="gateway.envoyproxy.io/gatewayclass-controller",
    port=80,
    start=_start,
)
