"""Rules on the amounts of a spec: each is a quantity that the operator can calculate with.

KubeRay has no such rules; the API server holds the text to a pattern, which admits `1e5000` and a number of any length.
"""

from collections.abc import Iterator
from typing import Final

from common import pod_json, quantity
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.validation.rules import Rule


def resources(cluster: RayCluster, _: Gates) -> str | None:
    """Name the first container with a limit or request that is no quantity."""
    problems = (f"{field}.{problem}" for field, template in _templates(cluster) for problem in _of_template(template))
    return next(problems, None)


def gcs_storage(cluster: RayCluster, _: Gates) -> str | None:
    """Name the size of the GCS storage when it is no quantity."""
    options = cluster.spec.gcs_fault_tolerance_options
    storage = options.storage if options is not None else None
    if storage is None or storage.size is None:
        return None
    problem = _problem(storage.size)
    return None if problem is None else f"gcsFaultToleranceOptions.storage.size: {problem}"


def _templates(cluster: RayCluster) -> Iterator[tuple[str, Body]]:
    yield "headGroupSpec.template.spec", cluster.spec.head_group_spec.template
    for index, group in enumerate(traits.worker_groups(cluster)):
        yield f"workerGroupSpecs[{index}].template.spec", group.template


def _of_template(template: Body) -> Iterator[str]:
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(pod_json.bodies(pod_json.spec(template), kind)):
            wanted = pod_json.body(container, "resources")
            for what in ("limits", "requests"):
                for name, amount in pod_json.mapping(wanted, what).items():
                    if (problem := _problem(amount)) is not None:
                        yield f"{kind}[{index}].resources.{what}[{name}]: {problem}"


def _problem(amount: object) -> str | None:
    if not isinstance(amount, str | int | float):
        return f"a {type(amount).__name__} is not a quantity; write a number with an optional suffix, such as 500m, 2 or 1.5Gi"
    try:
        quantity.parse(amount)
    except quantity.QuantityError as problem:
        return str(problem)
    return None


RULES: Final[tuple[Rule, ...]] = (resources, gcs_storage)
