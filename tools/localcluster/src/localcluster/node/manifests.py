"""The objects that make an empty cluster usable: DNS, volumes, and Envoy Gateway.

Envoy Gateway is started with the node or added later.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from localcluster import components, processes
from localcluster.api import ApiClient, Document, has_condition, read_manifests
from localcluster.binaries import GATEWAY_CRDS, Binaries
from localcluster.node.kubelet import NODE_NAME
from localcluster.node.namespaces import Namespaces
from localcluster.settings import Layout

GATEWAY_NAMESPACE = "envoy-gateway-system"
GATEWAY_CLASS = "eg"
GATEWAY_IMAGE = "registry.invalid/raybus/envoy-gateway:dev"
ENVOY_IMAGE = "registry.invalid/raybus/envoy:dev"

_CONTROLLER = "gateway.envoyproxy.io/gatewayclass-controller"
_EG_NAME = "envoy-gateway"


def build_dns(address: str) -> list[Document]:
    """Return the objects for DNS: RBAC for CoreDNS, and the Service kube-dns with an endpoint.

    The endpoint is the CoreDNS of the node, at `address`.
    """
    ports = [("dns", 53, "UDP"), ("dns-tcp", 53, "TCP")]
    rules = [
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    service = {
        "clusterIP": components.DNS_ADDRESS,
        "ports": [
            {"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports
        ],
    }
    endpoints: Document = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [
            {"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports
        ],
    }
    return [
        _build_object("rbac.authorization.k8s.io/v1", "ClusterRole", "system:coredns", rules=rules),
        _build_binding(
            "system:coredns", "system:coredns", {"kind": "User", "name": "system:coredns"}
        ),
        _build_object("v1", "Service", "kube-dns", namespace="kube-system", spec=service),
        endpoints,
    ]


def format_corefile(address: str, kubeconfig: Path) -> str:
    """Return the configuration of CoreDNS.

    It resolves only names of the cluster, because the node has no access to other networks.
    """
    return f""".:53 {{
  bind {address}
  errors
  kubernetes {components.CLUSTER_DOMAIN} in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 5
  }}
}}
"""


def build_storage(folders: Sequence[Path]) -> list[Document]:
    """Return the default storage class `standard`, and one PersistentVolume for each folder."""
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage_class: Document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": annotations},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    return [storage_class, *(_build_volume(index, folder) for index, folder in enumerate(folders))]


def build_gateway_setup() -> list[Document]:
    """Return the objects that must exist before the certificates of Envoy Gateway are created."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": GATEWAY_NAMESPACE, "labels": labels},
        },
        _build_object("v1", "ServiceAccount", _EG_NAME, namespace=GATEWAY_NAMESPACE),
        _build_binding(
            _EG_NAME,
            "cluster-admin",
            {"kind": "ServiceAccount", "name": _EG_NAME, "namespace": GATEWAY_NAMESPACE},
        ),
    ]


def build_gateway() -> list[Document]:
    """Return the objects of Envoy Gateway and its GatewayClass.

    They use images of the node, and no load balancer.
    """
    configuration = {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": _CONTROLLER},
        "provider": {
            "type": "Kubernetes",
            "kubernetes": {
                "leaderElection": {"disable": True},
                "shutdownManager": {"image": GATEWAY_IMAGE},
            },
        },
    }
    proxy = {
        "provider": {
            "type": "Kubernetes",
            "kubernetes": {
                "envoyService": {"type": "ClusterIP"},
                "envoyDeployment": {
                    "container": {
                        "image": ENVOY_IMAGE,
                        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
                    }
                },
            },
        }
    }
    parameters = {
        "group": "gateway.envoyproxy.io",
        "kind": "EnvoyProxy",
        "name": GATEWAY_CLASS,
        "namespace": GATEWAY_NAMESPACE,
    }
    ports = [("grpc", 18000), ("ratelimit", 18001), ("wasm", 18002)]
    service = {
        "selector": {"app": _EG_NAME},
        "ports": [{"name": name, "port": port} for name, port in ports],
    }
    data = {"envoy-gateway.yaml": yaml.safe_dump(configuration, sort_keys=False)}
    return [
        _build_object("v1", "ConfigMap", _EG_NAME, namespace=GATEWAY_NAMESPACE, data=data),
        _build_object("v1", "Service", _EG_NAME, namespace=GATEWAY_NAMESPACE, spec=service),
        _build_object(
            "apps/v1",
            "Deployment",
            _EG_NAME,
            namespace=GATEWAY_NAMESPACE,
            spec=_build_gateway_deployment(),
        ),
        _build_object(
            "gateway.envoyproxy.io/v1alpha1",
            "EnvoyProxy",
            GATEWAY_CLASS,
            namespace=GATEWAY_NAMESPACE,
            spec=proxy,
        ),
        _build_object(
            "gateway.networking.k8s.io/v1",
            "GatewayClass",
            GATEWAY_CLASS,
            spec={"controllerName": _CONTROLLER, "parametersRef": parameters},
        ),
    ]


def _build_gateway_deployment() -> Document:
    container = {
        "name": _EG_NAME,
        "image": GATEWAY_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["server", "--config-path=/config/envoy-gateway.yaml"],
        "env": [
            {"name": "ENVOY_GATEWAY_NAMESPACE", "value": GATEWAY_NAMESPACE},
            {"name": "ENVOY_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "volumeMounts": [
            {"name": "config", "mountPath": "/config", "readOnly": True},
            {"name": "certificates", "mountPath": "/certs", "readOnly": True},
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
    }
    volumes = [
        {"name": "config", "configMap": {"name": _EG_NAME}},
        {"name": "certificates", "secret": {"secretName": _EG_NAME}},
    ]
    return {
        "replicas": 1,
        "selector": {"matchLabels": {"app": _EG_NAME}},
        "template": {
            "metadata": {"labels": {"app": _EG_NAME}},
            "spec": {"serviceAccountName": _EG_NAME, "containers": [container], "volumes": volumes},
        },
    }


def _build_volume(index: int, folder: Path) -> Document:
    selector = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]}
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "standard",
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [selector]}]}},
    }
    return _build_object("v1", "PersistentVolume", f"local-{index}", spec=spec)


def _build_binding(name: str, role: str, subject: Mapping[str, str]) -> Document:
    group = "rbac.authorization.k8s.io"
    role_reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    return _build_object(
        f"{group}/v1", "ClusterRoleBinding", name, roleRef=role_reference, subjects=[dict(subject)]
    )


def _build_object(
    version: str, kind: str, name: str, *, namespace: str | None = None, **fields: Any
) -> Document:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


async def start(api: ApiClient, node: Namespaces, programs: Binaries, layout: Layout) -> None:
    """Start Envoy Gateway from images of the node, and wait until it accepts its GatewayClass.

    Raises `ClusterError` after 120 s.
    """
    await api.apply_definitions(read_manifests(programs.path(GATEWAY_CRDS)))
    for document in build_gateway_setup():
        await api.apply(document)
    environment = {
        "KUBECONFIG": layout.work / "envoy-gateway.kubeconfig",
        "ENVOY_GATEWAY_NAMESPACE": GATEWAY_NAMESPACE,
    }
    assignments = [f"{name}={value}" for name, value in environment.items()]
    program = [programs.argv0("envoy-gateway"), "certgen", "--disable-topology-injector"]
    argv = node.enter(["env", *assignments, *program])
    await processes.run_checked("making the gateway's certificates", argv)
    for document in build_gateway():
        await api.apply(document)
    path = f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{GATEWAY_CLASS}"
    await api.wait_for(
        "the gateway accepting its class", path, has_condition("Accepted"), timeout=120
    )
