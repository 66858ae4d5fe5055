"""Istio's pilot-discovery with the Envoy of this project as its gateway.

Istio's own proxy is an Envoy with further filters, and no registry offers it. So Istio is told to
send none of them, and the proxy's bootstrap is written here. Istio's controller of Deployments,
which would start the proxy in a pod, is off: the Service of the proxy exists beforehand.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import yaml

from common.api.opaque import Json
from localcluster import binaries, settings
from localcluster.api import Document
from raybus_cli import child_processes
from support.gateways.program import ADDRESS, GatewayGround, GatewayProgram, children, find_envoy
from support.servers.programs import prepared

PROXY_ADDRESS: Final = "10.251.0.1"
"""Address of the proxy in the EndpointSlice of its Service."""
GATEWAY_NAME: Final = "gateway.networking.k8s.io/gateway-name"
"""Label by which the Service of a Gateway selects its proxy."""
SYSTEM: Final = "istio-system"
MESH: Final[Json] = {
    "enableAutoMtls": False,
    "enablePrometheusMerge": False,
    "accessLogFile": "",
    # The default provider, prometheus, is a filter of Istio's own proxy.
    "defaultProviders": {"metrics": []},
}
ENVIRONMENT: Final = {
    "POD_NAME": "istiod",
    "POD_NAMESPACE": SYSTEM,
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false",
    # Filters of Istio's own proxy.
    "PILOT_ENABLE_METADATA_EXCHANGE": "false",
    "PILOT_ENABLE_ALPN_FILTER": "false",
    "INJECTION_WEBHOOK_CONFIG_NAME": "",
    "VALIDATION_WEBHOOK_CONFIG_NAME": "",
    "ENABLE_CA_SERVER": "false",
}


@asynccontextmanager
async def _start(program: GatewayProgram, ground: GatewayGround) -> AsyncGenerator[None]:
    mesh, bootstrap = ground.work / "mesh.yaml", ground.work / "envoy.json"
    mesh.write_text(yaml.safe_dump(MESH))
    http, https, grpc, secure, monitoring = child_processes.find_free_ports(5)
    async with ground.control_plane.api() as api:
        await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        for document in _build_service(ground):
            await api.apply(document)
    bootstrap.write_bytes(msgspec.json.encode(_build_bootstrap(ground, grpc)))
    async with children(ground) as started:
        started.start(
            "istiod",
            [
                str(prepared(binaries.ISTIO)),
                "discovery",
                f"--kubeconfig={ground.control_plane.kubeconfig}",
                f"--meshConfig={mesh}",
                f"--networksConfig={ground.work / 'networks.yaml'}",
                f"--namespace={SYSTEM}",
                f"--httpAddr={ADDRESS}:{http}",
                f"--httpsAddr={ADDRESS}:{https}",
                f"--grpcAddr={ADDRESS}:{grpc}",
                f"--secureGRPCAddr={ADDRESS}:{secure}",
                f"--monitoringAddr={ADDRESS}:{monitoring}",
            ],
            ENVIRONMENT,
        )
        started.start(
            "envoy",
            [
                find_envoy(),
                "--config-path",
                str(bootstrap),
                "--concurrency",
                "1",
                "--log-level",
                "warning",
                "--base-id",
                str(os.getpid()),
            ],
        )
        yield


def _build_service(ground: GatewayGround) -> list[Document]:
    """Return the Service of the proxy, under the name that Istio gives it, and its endpoint."""
    name = f"{ground.gateway}-istio"
    metadata = {"name": name, "namespace": ground.namespace}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "selector": {GATEWAY_NAME: ground.gateway},
                "ports": [{"name": "http", "port": 80}],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [PROXY_ADDRESS], "conditions": {"ready": True}}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    ]


def _build_bootstrap(ground: GatewayGround, port: int) -> Json:
    """Return Envoy's bootstrap: everything comes from Istio at a port of this machine."""
    name, domain = f"{ground.gateway}-istio", f"{ground.namespace}.svc.cluster.local"
    source: Json = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
    protocol = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    address = {"socket_address": {"address": ADDRESS, "port_value": port}}
    cluster: Json = {
        "name": "xds-grpc",
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            protocol: {
                "@type": f"type.googleapis.com/{protocol}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": "xds-grpc",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    return {
        "node": {
            "id": f"router~{PROXY_ADDRESS}~{name}.{ground.namespace}~{domain}",
            "cluster": f"{name}.{ground.namespace}",
            "metadata": {
                "NAMESPACE": ground.namespace,
                "CLUSTER_ID": "Kubernetes",
                "INSTANCE_IPS": PROXY_ADDRESS,
                "LABELS": {GATEWAY_NAME: ground.gateway},
            },
        },
        "dynamic_resources": {
            "lds_config": source,
            "cds_config": source,
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
        },
        "static_resources": {"clusters": [cluster]},
    }


ISTIO: Final = GatewayProgram(
    name="istio",
    version=settings.ISTIO,
    data_plane="Envoy",
    programs=(binaries.ISTIO, binaries.GATEWAY_API_OF_TESTS),
    crds=(binaries.GATEWAY_API_OF_TESTS,),
    controller_name="istio.io/gateway-controller",
    port=80,
    start=_start,
)
