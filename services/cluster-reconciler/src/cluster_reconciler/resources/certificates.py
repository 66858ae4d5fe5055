"""What cert-manager makes the certificates of a cluster from: a CA of the cluster's own, and one certificate for the head and one for all workers.

The CA signs itself. The head's certificate names its Service and its pod's address; the workers' has the addresses of all worker pods.
Behaviour: spec raycluster §20.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner, services
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import CERTIFICATE, ISSUER, Resource

KEYS: Final = ("tls.crt", "tls.key", "ca.crt")
"""What the Secret of a leaf certificate must hold."""
_LOCAL: Final = "127.0.0.1"
_LEAF_USAGES: Final = ("digital signature", "key encipherment", "server auth", "client auth")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the chain."""

    step: str
    """Its name in Events."""
    resource: Resource
    body: Body
    is_leaf: bool
    """Whether pods use the certificate: it follows their addresses."""

    @property
    def name(self) -> str:
        """Return the name of the object."""
        return self.body["metadata"]["name"]

    @property
    def place(self) -> tuple[Resource, str]:
        """Return the kind and the name of the object."""
        return self.resource, self.name

    @property
    def secret(self) -> str:
        """Return the Secret that a Certificate is written to; empty for an Issuer."""
        return self.body["spec"].get("secretName", "") if self.resource is CERTIFICATE else ""

    @property
    def addresses(self) -> list[str]:
        """Return the addresses that a leaf certificate names."""
        return self.body["spec"]["ipAddresses"]


def leaf_secret(cluster: RayCluster, *, is_head: bool) -> str:
    """Return the Secret of the head's certificate, or that of the workers'."""
    return f"ray-{'head' if is_head else 'worker'}-secret-{cluster.metadata.name}"


def chain(
    cluster: RayCluster, config: Config, *, heads: Iterable[str] = (), workers: Iterable[str] = ()
) -> tuple[Part, ...]:
    """Return the objects in the order in which they are made, for pods at these addresses."""
    name, uid = cluster.metadata.name, cluster.metadata.uid
    ca_secret, signer = f"{name}-ca-secret-{uid[:8]}", f"ray-ca-issuer-{name}"
    fqdn = names.head_fqdn(services.head_name(cluster), cluster.metadata.namespace, config.cluster_domain)
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
        _part(cluster, ISSUER, "self-signed issuer", f"ray-selfsigned-issuer-{name}", {"selfSigned": {}}),
        _part(cluster, CERTIFICATE, "CA certificate", f"ray-ca-certificate-{name}", authority),
        _part(cluster, ISSUER, "CA issuer", signer, {"ca": {"secretName": ca_secret}}),
        _leaf(cluster, "head", ["localhost", fqdn], heads),
        _leaf(cluster, "worker", ["localhost"], workers),
    )


def _part(cluster: RayCluster, resource: Resource, step: str, name: str, spec: Body, *, is_leaf: bool = False) -> Part:
    component = "selfsigned-issuer" if "selfSigned" in spec else step.lower().replace(" ", "-")
    own = {labels.CLUSTER: cluster.metadata.name, labels.APP_COMPONENT: component, **labels.BY_OPERATOR}
    body = owner.child(cluster, resource, name=name, labels=own, spec=spec)
    return Part(step=step, resource=resource, body=body, is_leaf=is_leaf)


def _leaf(cluster: RayCluster, node_type: str, dns_names: Sequence[str], addresses: Iterable[str]) -> Part:
    name = cluster.metadata.name
    spec: Body = {
        "secretName": leaf_secret(cluster, is_head=node_type == labels.HEAD),
        "duration": "2160h0m0s",
        "renewBefore": "360h0m0s",
        "dnsNames": sorted({*dns_names}),
        "ipAddresses": sorted(dict.fromkeys((_LOCAL, *addresses))),
        "usages": list(_LEAF_USAGES),
        "issuerRef": _issuer(f"ray-ca-issuer-{name}"),
    }
    return _part(cluster, CERTIFICATE, f"{node_type} certificate", f"ray-{node_type}-cert-{name}", spec, is_leaf=True)


def _issuer(name: str) -> Body:
    return {"name": name, "kind": ISSUER.kind, "group": ISSUER.group}
