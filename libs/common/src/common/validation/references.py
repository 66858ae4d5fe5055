"""Rules on names of other objects and on amounts: each name is legal for its kind, each amount a quantity that the operator can calculate with.

KubeRay has no such rules. Its client puts names into the path of a request; a pod that uses an illegal name never starts. The API server
holds amounts to a pattern, which admits `1e5000` and a number of any length.
"""

from collections.abc import Iterator

from common import pod_json, quantity
from common.api import kubernetes_syntax
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits


def problems(cluster: RayCluster) -> Iterator[str]:
    """Yield the fields with a text that no object can bear, then those with an amount that is no quantity."""
    spec, head = cluster.spec, cluster.spec.head_group_spec.template
    storage = spec.gcs_fault_tolerance_options.storage if spec.gcs_fault_tolerance_options else None
    secret, claim = spec.auth_options and spec.auth_options.secret_name, storage and storage.claim_name
    account = pod_json.text(pod_json.spec(head), "serviceAccountName")
    for field, kind, name in (
        ("authOptions.secretName", "Secret", secret),
        ("headGroupSpec.template.spec.serviceAccountName", "ServiceAccount", account),
        ("gcsFaultToleranceOptions.storage.claimName", "PersistentVolumeClaim", claim),
    ):
        if name and (found := kubernetes_syntax.dns_1123_subdomain_problems(name)):
            yield f"{field} is not the name of a {kind}: {'; '.join(found)}"
    yield from _of_template("headGroupSpec", head)
    for index, group in enumerate(traits.worker_groups(cluster)):
        yield from _of_template(f"workerGroupSpecs[{index}]", group.template)
    if storage is not None and storage.size is not None and (problem := _of_amount(storage.size)) is not None:
        yield f"gcsFaultToleranceOptions.storage.size: {problem}"


def _of_template(group: str, template: Body) -> Iterator[str]:
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod_json.bodies(pod_json.spec(template), kind)):
            resources = pod_json.body(container, "resources")
            for what in ("limits", "requests"):
                for name, amount in pod_json.mapping(resources, what).items():
                    if (problem := _of_amount(amount)) is not None:
                        yield f"{group}.template.spec.{kind}[{index}].resources.{what}[{name}]: {problem}"


def _of_amount(amount: object) -> str | None:
    if not isinstance(amount, str | int | float):
        return f"a {type(amount).__name__} is not a quantity; write a number with an optional suffix, such as 500m, 2 or 1.5Gi"
    try:
        quantity.parse(amount)
    except quantity.QuantityError as problem:
        return str(problem)
    return None
