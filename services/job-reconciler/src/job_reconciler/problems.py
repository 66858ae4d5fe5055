"""Find why a RayJob does not start, as one line for its status (spec rayjob §22, §24)."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.ray import start_problems
from common.ray.start_problems import StartProblem


def find_problem(
    cluster: RayCluster | None, pods: Iterable[Pod], now: datetime
) -> StartProblem | None:
    """Return the first problem of a job's cluster, in the order in which a user would fix problems.

    None if there is none, or before the cluster exists. `pods` are the pods of the cluster.
    """
    return None if cluster is None else next(_find_problems(cluster, pods, now), None)


def _find_problems(
    cluster: RayCluster, pods: Iterable[Pod], now: datetime
) -> Iterator[StartProblem]:
    if (suspension := start_problems.find_suspension(cluster)) is not None:
        yield suspension
    yield from start_problems.of_cluster(cluster)
    yield from start_problems.of_pods(pods, now)
