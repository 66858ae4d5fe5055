"""State of Serve on one cluster; both services that may write to a dashboard read it through this."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, TypeVar

import msgspec

from common import names
from common.api.core import EndpointSlice, Pod, Service
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.ray import deployed_config, serve_config, serve_status
from common.ray.serve_status import ServeDetails

LONGEST_RETRY: Final = timedelta(seconds=10)
"""Until a Serve config that was refused is sent again."""
CHECKS_KEPT: Final = 3
"""Health checks of a proxy that are remembered."""
SILENT: Final = 3
"""Failed reads in a row that make a silent dashboard a problem; a wrong identity is one at once."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The last read of a dashboard."""

    details: ServeDetails | None = None
    problem: str = ""
    failures: int = 0
    """Reads in a row that failed."""
    is_unauthenticated: bool = False
    """Whether the last one failed for want of a token that the dashboard accepts: nothing is known of Serve, and nothing is silent."""

    @property
    def silences(self) -> int:
        """Return the reads in a row that a dashboard did not answer."""
        return 0 if self.is_unauthenticated else self.failures


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A Serve config that could not be deployed."""

    config: str
    text: str
    retry_at: datetime
    is_answer: bool = True
    """Whether it is Ray's answer; otherwise there was none."""

    def is_due(self, now: datetime) -> bool:
        """Return whether to try again; a clock that was set back does not put it off."""
        return not timedelta(0) < self.retry_at - now <= LONGEST_RETRY


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """The last Serve config that this process sent to a cluster and that was accepted."""

    config: str
    capacity: int | None = None
    count: int = 1
    """How often it was sent in a row."""
    reported: str | None = None
    """Fingerprint of what Serve reported right after it; None before Serve was asked."""
    reported_before: str | None = None
    """That of an earlier PUT of the same config: once may be chance, so it takes the same answer twice."""


class ServeView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A cluster as the decision about its Serve config sees it; each service adds what else it reads."""

    cluster: RayCluster
    pods: tuple[Pod, ...] = ()
    """Its known pods; none where a service does not read them."""
    serve: Reading = Reading()
    given: str | None = None
    """The Serve config that Ray accepted last, from the durable record; where there is none, what Serve reports."""
    record: int = 0
    """The number of the newest record, 0 when there is none."""
    strategy: Json = {}
    """The upgrade strategy with which the cluster was begun, from the same record."""
    refused: Refusal | None = None
    put_at: datetime | None = None
    """When this process last sent a config; limits the rate of repeats, decides nothing else."""
    put: Put | None = None
    """The config and capacity that were sent then."""

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.cluster.metadata.name

    @property
    def was_edited(self) -> bool:
        """Return whether it was given another Serve config after its first one; each is a record with the next number."""
        return self.record > 1

    @cached_property
    def declared(self) -> ServeDetails | None:
        """Return what Serve reports of the applications that the cluster's config asks for.

        None without an answer. Where the config is not known, all applications count.
        """
        details = self.serve.details
        if details is None or self.given is None:
            return details
        names = serve_config.read(self.given).applications
        return serve_status.of_applications(details, names)

    @cached_property
    def routed(self) -> frozenset[str]:
        """Return the applications of the cluster's config to which Ray's proxies send requests.

        Those are the ones with a route prefix. Where none is known to have one, every application
        that the config asks for counts, or that Serve reports.
        """
        config = serve_config.read(self.given or "")
        details = self.declared
        reported = frozenset(details.named()) if details is not None else frozenset[str]()
        return config.routed or config.applications or reported

    @cached_property
    def differences(self) -> list[str] | None:
        """Return where Serve reports another config than the cluster has by its record.

        None without an answer or a record, and where Serve reports no application's config.
        """
        details = self.serve.details
        if self.given is None or details is None:
            return None
        return deployed_config.differences(self.given, details)

    @property
    def nodes(self) -> frozenset[str]:
        """Return the addresses of the cluster's head in the status and of its known pods."""
        known = (self.cluster.status.head.pod_ip, *(pod.status.pod_ip for pod in self.pods))
        return frozenset(each for each in known if each)


V = TypeVar("V", bound=ServeView)


def dashboard_service(cluster: RayCluster) -> str:
    """Return the name of the Service through which a cluster's dashboard is reached."""
    return cluster.status.head.service_name or names.head_service(cluster.metadata.name)


def foreign_service(service: Service, cluster: RayCluster) -> str | None:
    """Return why a Service may lead to something else than the head of a cluster.

    Every writer of Services and of a RayCluster's status could have us send requests, and the cluster's token, to any address.
    """
    meta = service.metadata
    if service.spec.type == "ExternalName":
        why = "its type is ExternalName"
    elif not service.spec.selector:
        why = "it has no selector"
    elif all(each.uid != cluster.metadata.uid for each in meta.owner_references):
        why = f"it is not owned by RayCluster {cluster.metadata.name}"
    else:
        return None
    return f"the dashboard is not asked through Service {meta.name}: {why}; delete it, and raybus creates the head Service"


def head_addresses(service: Service, slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Return the addresses of pods in the EndpointSlices that a head Service owns."""
    own = (
        each
        for each in slices
        if any(owner.uid == service.metadata.uid for owner in each.metadata.owner_references)
    )
    return frozenset(
        address
        for each in own
        for endpoint in each.endpoints or []
        if endpoint.target_ref is not None and endpoint.target_ref.kind == "Pod"
        for address in endpoint.addresses
    )


def foreign_answer(
    cluster: RayCluster, known: frozenset[str], details: ServeDetails | None
) -> str | None:
    """Return why an answer of a dashboard is not this cluster's: it names nodes, and none of them is known.

    The head has a proxy wherever there are proxies, so its address suffices. Before its first config
    Serve names no node, and the address that was asked is all that is known.
    """
    if details is None or not details.proxies or not known:
        return None
    named = details.nodes
    if not named or named & known:
        return None
    return (
        f"the dashboard of RayCluster {cluster.metadata.name} names node {min(named)} and none of the cluster's pods "
        f"({', '.join(sorted(known)[:3])}); no Serve config is sent to it"
    )


def verify_identity(view: V | None, other: V | None) -> V | None:
    """Return a view, without an answer that the other cluster gave: it names nodes of that one and none of this one.

    A pod may take over the address of an earlier one a moment later, and a connection or a name may still lead to it. Such an answer
    must neither show that a cluster serves nor take this cluster's config.
    """
    if view is None or other is None or view.serve.details is None:
        return view
    named = view.serve.details.nodes
    if named & view.nodes or not named & other.nodes:
        return view
    text = f"the dashboard of RayCluster {view.name} answers for RayCluster {other.name}"
    return msgspec.structs.replace(view, serve=Reading(problem=text, failures=SILENT))


def head_is_ready(cluster: RayCluster) -> bool:
    """Return whether the RayCluster reports that its head pod is ready."""
    return any(
        each.type == "HeadPodReady" and each.status == "True" for each in cluster.status.conditions
    )
