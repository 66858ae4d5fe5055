"""Turns a snapshot into service-reconciler's observation, for its own decisions on the command line."""

from typing import Final

from common import names as naming
from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.feature_gates import BETA, Gates
from common.problem import message_of
from common.ray import revision
from common.ray.view import Reading
from raybus_cli.reading.snapshot import Snapshot
from service_reconciler import observed as seen
from service_reconciler import validation
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.resources import services
from service_reconciler.settings import Config

FRESH_NAME: Final = "new"
"""Stands for the name that the service would generate."""


def observe(snapshot: Snapshot, gates: Gates = BETA, *, service: RayService | None = None) -> Observed:
    """Return what service-reconciler would observe; `service` replaces the present one, for a prediction."""
    goal = service or snapshot.service
    serve, head = _named(snapshot, services.serve_name(goal)), _named(snapshot, naming.head_service(goal.metadata.name))
    names = seen.names_of(goal, snapshot.clusters, services.selected(serve) or services.selected(head))
    return Observed(
        service=goal,
        config=Config(gates=gates),
        names=names,
        fresh_name=f"{goal.metadata.name}-{FRESH_NAME}",
        violation=validation.violation(goal, gates),
        clusters=snapshot.clusters,
        active=_view(snapshot, names.active),
        pending=_view(snapshot, names.pending),
        services=snapshot.services,
        head_service=head,
        serve_service=serve,
        gateways=snapshot.gateways,
        route=snapshot.route,
        our_route=snapshot.route,
        grpc_route=snapshot.grpc_route,
        endpoints=goal.status.num_serve_endpoints,
    )


def violation(service: RayService, gates: Gates) -> str | None:
    """Return why service-reconciler would reject a RayService."""
    return message_of(validation.violation(service, gates))


def records(snapshot: Snapshot, cluster: RayCluster) -> list[revision.Revision]:
    """Return the Serve config records of a cluster, newest first."""
    return revision.of(cluster, list(snapshot.revisions))


def given(snapshot: Snapshot, cluster: RayCluster) -> revision.Given | None:
    """Return the present Serve config of a cluster; None when it is unknown."""
    return revision.current(records(snapshot, cluster), snapshot.serve.get(cluster.metadata.name))


def _view(snapshot: Snapshot, name: str) -> ClusterView | None:
    cluster = snapshot.cluster(name)
    if cluster is None or cluster.metadata.deletion_timestamp is not None:
        return None
    details, has = snapshot.serve.get(name), given(snapshot, cluster)
    return ClusterView(
        cluster=cluster,
        pods=snapshot.pods_of(name),
        serve=Reading(details=details),
        given=None if has is None else has.serve_config,
    )


def _named(snapshot: Snapshot, name: str) -> Service | None:
    return next((each for each in snapshot.services if each.metadata.name == name), None)
