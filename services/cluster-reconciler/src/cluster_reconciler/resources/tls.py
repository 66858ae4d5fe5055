"""Mutual TLS between Ray's processes: what cert-manager makes a cluster's certificates from, and what a pod needs to use its own.

A CA of the cluster's own signs one certificate for the head, which names its Service and its pod's address, and one for all workers, which
has the addresses of all of them. Ray uses TLS for its gRPC alone: dashboard, agent and Serve's HTTP proxies stay plain, and so do the probes.
Ray reads the files once, at its start. So an init container waits until the certificate names the pod's own address.
Behaviour: spec raycluster §11.15, §20; acceptance case 120.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner, services
from cluster_reconciler.resources.node import Node
from common import labels, names, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import CERTIFICATE, ISSUER, Resource
from common.pod_json import from_field, literal
from common.ray import cluster_traits as traits
from common.validation import features

KEYS: Final = ("tls.crt", "tls.key", "ca.crt")
"""What the Secret of a leaf certificate must hold."""
_LOCAL: Final = "127.0.0.1"
_LEAF_USAGES: Final = ("digital signature", "key encipherment", "server auth", "client auth")
WAIT_FOR_ADDRESS: Final = "wait-for-tls-ip-san"
"""The init container that waits."""
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
"""`-checkip` compares addresses, not texts, so it finds those of IPv6 too."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the chain."""

    step: str
    """Its name in Events."""
    resource: Resource
    name: str
    body: Body
    secret: str
    """The Secret that a Certificate is written to; empty for an Issuer."""
    is_leaf: bool
    """Whether pods use the certificate: it follows their addresses."""

    @property
    def place(self) -> tuple[Resource, str]:
        """Return the kind and the name of the object."""
        return self.resource, self.name


def leaf_secret(cluster: RayCluster, *, is_head: bool) -> str:
    """Return the Secret of the head's certificate, or that of the workers'."""
    return f"ray-{'head' if is_head else 'worker'}-secret-{cluster.metadata.name}"


def chain(
    cluster: RayCluster, config: Config, heads: Iterable[str] = (), workers: Iterable[str] = ()
) -> tuple[Part, ...]:
    """Return the objects in the order in which they are made, for pods at these addresses."""
    name, uid = cluster.metadata.name, cluster.metadata.uid
    ca_secret, signer = f"{name}-ca-secret-{uid[:8]}", f"ray-ca-issuer-{name}"
    fqdn = names.head_fqdn(
        services.head_name(cluster), cluster.metadata.namespace, config.cluster_domain
    )
    authority: Body = {
        "secretName": ca_secret,
        "isCA": True,
        "commonName": f"ray-ca-{name}",
        # With another key, later certificates and those that running pods keep would not trust each other.
        "privateKey": {"algorithm": "RSA", "size": 4096, "rotationPolicy": "Never"},
        "duration": "87600h0m0s",
        "renewBefore": "720h0m0s",
        "usages": ["cert sign", "crl sign"],
        "issuerRef": _issuer(f"ray-selfsigned-issuer-{name}"),
    }
    return (
        _part(
            cluster,
            ISSUER,
            "self-signed issuer",
            f"ray-selfsigned-issuer-{name}",
            {"selfSigned": {}},
        ),
        _part(cluster, CERTIFICATE, "CA certificate", f"ray-ca-certificate-{name}", authority),
        _part(cluster, ISSUER, "CA issuer", signer, {"ca": {"secretName": ca_secret}}),
        _leaf(cluster, "head", ["localhost", fqdn], heads),
        _leaf(cluster, "worker", ["localhost"], workers),
    )


def _part(
    cluster: RayCluster,
    resource: Resource,
    step: str,
    name: str,
    spec: Body,
    *,
    is_leaf: bool = False,
) -> Part:
    component = "selfsigned-issuer" if "selfSigned" in spec else step.lower().replace(" ", "-")
    own = {
        labels.CLUSTER: cluster.metadata.name,
        labels.APP_COMPONENT: component,
        **labels.BY_OPERATOR,
    }
    body = owner.child(cluster, resource, name=name, labels=own, spec=spec)
    secret = spec.get("secretName", "")
    return Part(step=step, resource=resource, name=name, body=body, secret=secret, is_leaf=is_leaf)


def _leaf(
    cluster: RayCluster, node_type: str, dns_names: Sequence[str], addresses: Iterable[str]
) -> Part:
    name = cluster.metadata.name
    spec: Body = {
        "secretName": leaf_secret(cluster, is_head=node_type == labels.HEAD),
        "duration": "2160h0m0s",
        "renewBefore": "360h0m0s",
        "dnsNames": sorted({*dns_names}),
        "ipAddresses": sorted({_LOCAL, *addresses}),
        "usages": list(_LEAF_USAGES),
        "issuerRef": _issuer(f"ray-ca-issuer-{name}"),
    }
    return _part(
        cluster,
        CERTIFICATE,
        f"{node_type} certificate",
        f"ray-{node_type}-cert-{name}",
        spec,
        is_leaf=True,
    )


def _issuer(name: str) -> Body:
    return {"name": name, "kind": ISSUER.kind, "group": ISSUER.group}


def configure_container(container: Body, cluster: RayCluster) -> None:
    """Let a container's Ray processes use TLS, where the cluster asks for it."""
    if not traits.has_tls(cluster):
        return
    pod_json.add_missing_env(container, *_ENV)
    if not pod_json.has_mount(container, name=features.TLS_VOLUME, path=features.TLS_PATH):
        pod_json.ensure_list(container, "volumeMounts").append(dict(_MOUNT))


def configure_pod(pod: Body, node: Node) -> None:
    """Give a pod the certificate, and have it wait until the certificate names its address."""
    if not traits.has_tls(node.cluster):
        return
    secret = {"secretName": leaf_secret(node.cluster, is_head=node.is_head)}
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


def without_wait(pod: Body) -> None:
    """Let a pod start without its own address in the certificate: that of a Job never is."""
    if (wait := pod_json.named(pod["spec"], "initContainers", WAIT_FOR_ADDRESS)) is not None:
        pod["spec"]["initContainers"].remove(wait)
