"""Starts Envoy Gateway on a node: with the node, or later on a running one."""

from localcluster import processes
from localcluster.api import Api, condition, read_manifests
from localcluster.binaries import GATEWAY_CRDS, Binaries
from localcluster.node import manifests
from localcluster.node.namespaces import Namespaces
from localcluster.settings import Layout


async def start(api: Api, node: Namespaces, programs: Binaries, layout: Layout) -> None:
    """Start Envoy Gateway from the node's images, and wait until it has accepted its GatewayClass."""
    await api.apply_definitions(read_manifests(programs.path(GATEWAY_CRDS)))
    for document in manifests.gateway_setup():
        await api.apply(document)
    environment = {
        "KUBECONFIG": layout.work / "envoy-gateway.kubeconfig",
        "ENVOY_GATEWAY_NAMESPACE": manifests.GATEWAY_NAMESPACE,
    }
    assignments = [f"{name}={value}" for name, value in environment.items()]
    program = [programs.argv0("envoy-gateway"), "certgen", "--disable-topology-injector"]
    argv = node.enter(["env", *assignments, *program])
    await processes.must("making the gateway's certificates", argv)
    for document in manifests.gateway():
        await api.apply(document)
    path = f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{manifests.GATEWAY_CLASS}"
    await api.wait_for("the gateway accepting its class", path, condition("Accepted"), timeout=120)
