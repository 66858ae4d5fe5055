"""Laws of every route that carries users' requests, in addition to the weights of the weighted
route.
"""

from collections.abc import Iterable, Iterator

from common import names
from common.api.opaque import Json


def dead_backends(routes: Iterable[Json], deleted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each route that sends requests to the Service of a deleted cluster, with that cluster.

    Mirrored copies are no requests of users: only `backendRefs` with a weight count.
    """
    services = {names.serve_service(cluster): cluster for cluster in deleted}
    for route in routes:
        for rule in route["spec"].get("rules", []):
            for backend in rule.get("backendRefs", []):
                if backend["name"] in services and backend.get("weight", 1) > 0:
                    yield route["metadata"]["name"], services[backend["name"]]
