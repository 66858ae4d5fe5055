"""Rules on the names of other objects that a spec refers to: each is a legal name of its kind.

KubeRay has no such rules; its client puts the name into the path of a request. A pod that uses such a name never starts.
"""

from typing import Final

from common import pod_json
from common.api import kubernetes_syntax
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.validation.rules import Rule


def auth_secret(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field with a text that no Secret can bear."""
    options = cluster.spec.auth_options
    return _problem("authOptions.secretName", "Secret", options.secret_name if options is not None else None)


def service_account(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field with a text that no ServiceAccount can bear."""
    name = pod_json.text(pod_json.spec(cluster.spec.head_group_spec.template), "serviceAccountName")
    return _problem("headGroupSpec.template.spec.serviceAccountName", "ServiceAccount", name)


def gcs_claim(cluster: RayCluster, _: Gates) -> str | None:
    """Name the field with a text that no PersistentVolumeClaim can bear."""
    options = cluster.spec.gcs_fault_tolerance_options
    storage = options.storage if options is not None else None
    field = "gcsFaultToleranceOptions.storage.claimName"
    return _problem(field, "PersistentVolumeClaim", storage.claim_name if storage is not None else None)


def _problem(field: str, kind: str, name: str | None) -> str | None:
    problems = kubernetes_syntax.dns_1123_subdomain_problems(name) if name else []
    return f"{field} is not the name of a {kind}: {'; '.join(problems)}" if problems else None


RULES: Final[tuple[Rule, ...]] = (auth_secret, service_account, gcs_claim)
