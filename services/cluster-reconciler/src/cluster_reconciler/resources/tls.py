"""Mutual TLS between Ray's processes: what a pod needs to use the certificate that cert-manager issues to it.

Ray uses TLS for its gRPC alone: dashboard, agent and Serve's HTTP proxies stay plain, and so do the probes. Ray reads the files once, at
its start. So an init container waits until the certificate names the pod's own address. Behaviour: spec raycluster §11.15; acceptance case 120.
"""

from typing import Final

from cluster_reconciler.resources import certificates
from cluster_reconciler.resources.node import Node
from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.pod_json import from_field, literal
from common.ray import cluster_traits as traits
from common.validation import features

WAIT_FOR_ADDRESS: Final = "wait-for-tls-ip-san"
"""The init container that waits."""
_ENV: Final = tuple(
    literal(name, value)
    for name, value in zip(
        features.TLS_ENV,
        ("1", *(f"{features.TLS_PATH}/{file}" for file in ("tls.crt", "tls.key", "ca.crt"))),
        strict=True,
    )
)
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
    secret = {"secretName": certificates.leaf_secret(node.cluster, is_head=node.is_head)}
    pod_json.add_missing_volume(pod, {"name": features.TLS_VOLUME, "secret": secret})
    init_containers = pod_json.ensure_list(pod["spec"], "initContainers")
    if any(each["name"] == WAIT_FOR_ADDRESS for each in init_containers):
        return
    wait: Body = {
        "name": WAIT_FOR_ADDRESS,
        **pod_json.shared(pod_json.ray_container(pod), "image", "imagePullPolicy", "securityContext"),
        "command": ["sh", "-c"],
        "args": [_SCRIPT],
        "env": [from_field("POD_IP", "status.podIP")],
        "volumeMounts": [dict(_MOUNT)],
        "resources": {"limits": dict(_RESOURCES), "requests": dict(_RESOURCES)},
    }
    init_containers.insert(0, wait)


def without_wait(pod: Body) -> None:
    """Let a pod start without its own address in the certificate: that of a Job never is."""
    init_containers = pod_json.bodies(pod["spec"], "initContainers")
    if any(each["name"] == WAIT_FOR_ADDRESS for each in init_containers):
        pod["spec"]["initContainers"] = [each for each in init_containers if each["name"] != WAIT_FOR_ADDRESS]
