"""Mutual TLS between Ray's processes: the objects for cert-manager, and the setup of pods.

The cluster's own CA signs two certificates: one for the head, with its Service name and the address
of its pod, and one for all workers, with all their addresses. Ray uses TLS only for gRPC:
dashboard, agent, Serve's HTTP proxies and the probes stay unencrypted. Ray reads the files once, at
its start, so an init container waits until the certificate contains the pod's address. Spec
raycluster §11.15, §20; acceptance case 120.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner, services
from cluster_reconciler.resources.node import RayNode
from common import labels, names, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import CERTIFICATE, ISSUER, Resource
from common.pod_json import from_field, literal
from common.ray import cluster_traits as traits
from common.validation import features

KEYS: Final = ("tls.crt", "tls.key", "ca.crt")
"""Keys that the Secret of a leaf certificate must have."""
_LOCAL: Final = "127.0.0.1"
_LEAF_USAGES: Final = ("digital signature", "key encipherment", "server auth", "client auth")
WAIT_FOR_ADDRESS: Final = "wait-for-tls-ip-san"
"""Name of the init container that waits until the certificate contains the pod's address."""
_FILES: Final = [f"{features.TLS_PATH}/{key}" for key in KEYS]
_ENV: Final = [
    literal(name, value) for name, value in zip(features.TLS_ENV, ("1", *_FILES), strict=True)
]
_MOUNT: Final = {"name": features.TLS_VOLUME, "mountPath": features.TLS_PATH, "readOnly": True}
_RESOURCES: Final = {"cpu": "50m", "memory": "64Mi"}
_SCRIPT: Final = f"""\
if ! command -v openssl > /dev/null 2>&1; then
  echo "this image has no openssl, so the addresses of the certificate cannot be read" >&2
  exit 1
fi
address="${{POD_IP:-$(hostname -i | cut -d ' ' -f 1)}}"
until openssl x509 -in {features.TLS_PATH}/tls.crt -noout -checkip "$address" 2> /dev/null | grep -q "does match"; do
  echo "the certificate does not name $address yet"
  sleep 5
done
"""
"""Script that waits until the certificate contains the pod's address.

`-checkip` compares addresses and not texts, so it works for IPv6 too.
"""


class ChainPart(msgspec.Struct, frozen=True, kw_only=True):
    """Issuer or Certificate in the chain from the self-signed issuer to the pods' certificates."""

    step: str
    """Name of the Issuer or Certificate in Events."""
    resource: Resource
    name: str
    body: Body
    secret: str
    """Name of the Secret to which a Certificate is written; empty for an Issuer."""
    is_leaf: bool
    """Whether pods use the certificate. It is then issued again when their addresses change."""

    @property
    def address(self) -> tuple[Resource, str]:
        return self.resource, self.name


def get_leaf_secret_name(cluster: RayCluster, *, is_head: bool) -> str:
    """Return the name of the Secret with the certificate of the head or of the workers."""
    return f"ray-{'head' if is_head else 'worker'}-secret-{cluster.metadata.name}"


def build_chain(
    cluster: RayCluster, config: Config, heads: Iterable[str] = (), workers: Iterable[str] = ()
) -> tuple[ChainPart, ...]:
    """Return the Issuers and Certificates in creation order.

    `heads` and `workers` are the IP addresses of the pods.
    """
    name, uid = cluster.metadata.name, cluster.metadata.uid
    ca_secret, signer = f"{name}-ca-secret-{uid[:8]}", f"ray-ca-issuer-{name}"
    fqdn = names.head_fqdn(
        services.get_head_service_name(cluster), cluster.metadata.namespace, config.cluster_domain
    )
    authority: Body = {
        "secretName": ca_secret,
        "isCA": True,
        "commonName": f"ray-ca-{name}",
        # With a new key, later certificates and those of running pods would not trust each other.
        "privateKey": {"algorithm": "RSA", "size": 4096, "rotationPolicy": "Never"},
        "duration": "87600h0m0s",
        "renewBefore": "720h0m0s",
        "usages": ["cert sign", "crl sign"],
        "issuerRef": _build_issuer_ref(f"ray-selfsigned-issuer-{name}"),
    }
    return (
        _build_part(
            cluster,
            ISSUER,
            "self-signed issuer",
            f"ray-selfsigned-issuer-{name}",
            {"selfSigned": {}},
        ),
        _build_part(
            cluster, CERTIFICATE, "CA certificate", f"ray-ca-certificate-{name}", authority
        ),
        _build_part(cluster, ISSUER, "CA issuer", signer, {"ca": {"secretName": ca_secret}}),
        _build_leaf(cluster, "head", ["localhost", fqdn], heads),
        _build_leaf(cluster, "worker", ["localhost"], workers),
    )


def _build_part(
    cluster: RayCluster,
    resource: Resource,
    step: str,
    name: str,
    spec: Body,
    *,
    is_leaf: bool = False,
) -> ChainPart:
    component = "selfsigned-issuer" if "selfSigned" in spec else step.lower().replace(" ", "-")
    own = {
        labels.CLUSTER: cluster.metadata.name,
        labels.APP_COMPONENT: component,
        **labels.BY_OPERATOR,
    }
    body = owner.build_child(cluster, resource, name=name, labels=own, spec=spec)
    secret = spec.get("secretName", "")
    return ChainPart(
        step=step, resource=resource, name=name, body=body, secret=secret, is_leaf=is_leaf
    )


def _build_leaf(
    cluster: RayCluster, node_type: str, dns_names: Sequence[str], addresses: Iterable[str]
) -> ChainPart:
    name = cluster.metadata.name
    spec: Body = {
        "secretName": get_leaf_secret_name(cluster, is_head=node_type == labels.HEAD),
        "duration": "2160h0m0s",
        "renewBefore": "360h0m0s",
        "dnsNames": sorted({*dns_names}),
        "ipAddresses": sorted({_LOCAL, *addresses}),
        "usages": list(_LEAF_USAGES),
        "issuerRef": _build_issuer_ref(f"ray-ca-issuer-{name}"),
    }
    return _build_part(
        cluster,
        CERTIFICATE,
        f"{node_type} certificate",
        f"ray-{node_type}-cert-{name}",
        spec,
        is_leaf=True,
    )


def _build_issuer_ref(name: str) -> Body:
    return {"name": name, "kind": ISSUER.kind, "group": ISSUER.group}


def configure_container(container: Body, cluster: RayCluster) -> None:
    """Add TLS to the environment and mounts of a container, if the cluster asks for TLS."""
    if not traits.has_tls(cluster):
        return
    pod_json.add_missing_env(container, *_ENV)
    if not pod_json.has_mount(container, name=features.TLS_VOLUME, path=features.TLS_PATH):
        pod_json.ensure_list(container, "volumeMounts").append(dict(_MOUNT))


def configure_pod(pod: Body, node: RayNode) -> None:
    """Add the certificate to a pod, and an init container that waits for the pod's IP in it."""
    if not traits.has_tls(node.cluster):
        return
    secret = {"secretName": get_leaf_secret_name(node.cluster, is_head=node.is_head)}
    pod_json.add_missing_volume(pod, {"name": features.TLS_VOLUME, "secret": secret})
    if pod_json.named(pod["spec"], "initContainers", WAIT_FOR_ADDRESS) is not None:
        return
    wait: Body = {
        "name": WAIT_FOR_ADDRESS,
        **pod_json.shared(
            pod_json.ray_container(pod), "image", "imagePullPolicy", "securityContext"
        ),
        "command": ["sh", "-c"],
        "args": [_SCRIPT],
        "env": [from_field("POD_IP", "status.podIP")],
        "volumeMounts": [dict(_MOUNT)],
        "resources": {"limits": dict(_RESOURCES), "requests": dict(_RESOURCES)},
    }
    pod_json.ensure_list(pod["spec"], "initContainers").insert(0, wait)


def remove_address_wait(pod: Body) -> None:
    """Remove the init container that waits for the pod's address in the certificate.

    No certificate contains the address of a Job's pod.
    """
    if (wait := pod_json.named(pod["spec"], "initContainers", WAIT_FOR_ADDRESS)) is not None:
        pod["spec"]["initContainers"].remove(wait)
