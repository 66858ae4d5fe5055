"""A look as service-reconciler would see it, so that its own decisions can be asked from the command line."""

from typing import Final

import msgspec

from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import adoption, revision
from common.ray.view import Reading
from raybus_cli.reading.look import Look
from service_reconciler import observed as seen
from service_reconciler import validation
from service_reconciler.config import Config
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.resources import head_service, serve_service

FRESH_NAME: Final = "new"
"""Stands for the name that the service would draw."""


def observe(look: Look, config: Config, *, service: RayService | None = None) -> Observed:
    """Return what service-reconciler would observe; `service` in place of the one that is there, to ask what it would do."""
    goal = service or look.service
    serve, head = _named(look, serve_service.name(goal)), _named(look, head_service.name(goal.metadata.name))
    names = seen.names_of(goal, look.clusters, serve_service.selected(serve) or serve_service.selected(head))
    return Observed(
        service=goal,
        config=config,
        names=names,
        fresh_name=f"{goal.metadata.name}-{FRESH_NAME}",
        violation=validation.violation(goal, config.gates),
        clusters=look.clusters,
        active=_view(look, names.active),
        pending=_view(look, names.pending),
        services=look.services,
        head_service=head,
        serve_service=serve,
        gateways=look.gateways,
        route=look.route,
        our_route=look.route,
        grpc_route=look.grpc_route,
        endpoints=goal.status.num_serve_endpoints,
    )


def records(look: Look, cluster: RayCluster) -> list[revision.Revision]:
    """Return the records of what a cluster was given, newest first."""
    return revision.of(cluster, list(look.revisions))


def given(look: Look, cluster: RayCluster) -> revision.Given | None:
    """Return what a cluster has; None when nobody knows."""
    return adoption.current(records(look, cluster), look.serve.get(cluster.metadata.name))


def _view(look: Look, name: str) -> ClusterView | None:
    cluster = look.cluster(name)
    if cluster is None or cluster.metadata.deletion_timestamp is not None:
        return None
    details, has = look.serve.get(name), given(look, cluster)
    return ClusterView(
        cluster=cluster,
        pods=look.pods_of(name),
        serve=Reading(details=details),
        given=None if has is None else has.serve_config,
    )


def _named(look: Look, name: str) -> Service | None:
    return next((each for each in look.services if each.metadata.name == name), None)


def with_spec(service: RayService, spec: msgspec.Raw, *, generation: int | None = None) -> RayService:
    """Return a RayService with another spec and the status that it has."""
    meta = service.metadata
    if generation is not None:
        meta = msgspec.structs.replace(meta, generation=generation)
    return RayService(metadata=meta, spec_json=spec, status=service.status)
