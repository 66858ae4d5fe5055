"""The state of Serve on one cluster, as service-reconciler and traffic-manager observe it."""

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
from common.ray.serve_config import ParsedConfigs, ServeConfig
from common.ray.serve_status import ServeDetails

MAX_RETRY_DELAY: Final = timedelta(seconds=10)
"""Maximum wait until a rejected Serve config is sent again."""
CHECKS_KEPT: Final = 3
"""Number of health checks to remember for each Serve proxy."""
SILENT: Final = 3
"""Consecutive failed reads after which a dashboard counts as silent.

If a dashboard's answer is from a different cluster, it counts as silent at once.
"""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the last read of a dashboard."""

    details: ServeDetails | None = None
    problem: str = ""
    failures: int = 0
    """Number of consecutive failed reads."""
    excused: int = 0
    """Number of failed reads that do not count as silence of this cluster.

    The other cluster of the upgrade was silent at the same time, so the cause may lie outside of
    both clusters, such as a process without CPU time.
    """
    is_unauthenticated: bool = False
    """Whether the dashboard rejected the token. Then Serve's state is unknown, but the dashboard
    does not count as silent.
    """

    @property
    def is_silent(self) -> bool:
        """Return whether the last read failed for any reason but a rejected token."""
        return self.failures > 0 and not self.is_unauthenticated

    @property
    def silences(self) -> int:
        """Return the number of consecutive failed reads that count as silence of this cluster."""
        return self.failures - self.excused if self.is_silent else 0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A Serve config that could not be sent, or that Ray rejected, and when to try again."""

    config: str
    text: str
    retry_at: datetime
    is_answer: bool = True
    """Whether Ray answered with a rejection; False if there was no answer."""

    def is_due(self, now: datetime) -> bool:
        """Return whether it is time to try again; also True if the clock was set back."""
        return not timedelta(0) < self.retry_at - now <= MAX_RETRY_DELAY


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """The last Serve config that this process sent to a cluster and that Ray accepted."""

    config: str
    capacity: int | None = None
    count: int = 1
    """How many times in a row this process sent the config."""
    reported: str | None = None
    """Fingerprint of Serve's first report after the PUT; None until Serve is polled."""
    reported_before: str | None = None
    """Fingerprint of Serve's report after an earlier PUT of the same config.

    Serve may report a config differently from how it was sent. If both fingerprints are equal,
    Serve causes the difference, and nobody has changed the config.
    """


class ServeView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What the decision about a cluster's Serve config needs to know about the cluster.

    service-reconciler and traffic-manager each extend this class with fields of their own.
    """

    cluster: RayCluster
    pods: tuple[Pod, ...] = ()
    """The cluster's known pods; empty if the service does not read them."""
    serve: Reading = Reading()
    given: str | None = None
    """The Serve config that the cluster has, from its records or else from Serve's report; None if
    unknown.
    """
    record: int = 0
    """Number of the newest record of a Serve config; 0 if there is none."""
    strategy: Json = {}
    """The upgrade strategy that the cluster began with, from the record."""
    refused: Refusal | None = None
    put_at: datetime | None = None
    """When Ray last accepted a config from this process; None if it accepted none."""
    put: Put | None = None
    """The config and capacity that this process last sent and Ray accepted."""
    parsed: ParsedConfigs = {}
    """Serve configs by their text: `given` and the RayService's config.

    They are parsed in advance, because parsing a long config takes time.
    """

    @property
    def name(self) -> str:
        return self.cluster.metadata.name

    @property
    def was_edited(self) -> bool:
        """Return whether the cluster was sent a different Serve config after its first one.

        Each config is recorded with the next number.
        """
        return self.record > 1

    def parse(self, config: str) -> ServeConfig:
        """Return a Serve config in parsed form; parse it now if `parsed` lacks it."""
        return serve_config.get(config, self.parsed)

    @cached_property
    def declared(self) -> ServeDetails | None:
        """Return Serve's status with only the applications in the cluster's config.

        If the config is unknown, return it with all applications. None if Serve has not answered.
        """
        details = self.serve.details
        if details is None or self.given is None:
            return details
        names = self.parse(self.given).applications
        return serve_status.of_applications(details, names)

    @cached_property
    def routed(self) -> frozenset[str]:
        """Return the applications with a route prefix, to which Ray's proxies send requests.

        If there are none in the config, return all applications of the config. If the config is
        unknown or has none, return all applications that Serve reports.
        """
        config = self.parse(self.given or "")
        details = self.declared
        reported = frozenset(details.named()) if details is not None else frozenset[str]()
        return config.routed or config.applications or reported

    @cached_property
    def differences(self) -> list[str] | None:
        """Return the options in which the config that Serve reports differs from the cluster's.

        None if Serve has not answered, if the cluster's config is unknown, or if Serve reports no
        configs.
        """
        details = self.serve.details
        if self.given is None or details is None:
            return None
        return deployed_config.differences(self.parse(self.given), details)

    @property
    def nodes(self) -> frozenset[str]:
        """Return the addresses of the head (from the RayCluster's status) and of known pods."""
        known = (self.cluster.status.head.pod_ip, *(pod.status.pod_ip for pod in self.pods))
        return frozenset(address for address in known if address)


V = TypeVar("V", bound=ServeView)


def dashboard_service(cluster: RayCluster) -> str:
    """Return the name of the head Service, through which a cluster's dashboard is reached."""
    return cluster.status.head.service_name or names.head_service(cluster.metadata.name)


def foreign_service(service: Service, cluster: RayCluster) -> str | None:
    """Return why a Service may lead elsewhere than to the head of a cluster; None if it cannot.

    Without this check, whoever can write Services or a RayCluster's status could make raybus send
    requests with the cluster's token to any address.
    """
    meta = service.metadata
    if service.spec.type == "ExternalName":
        why = "its type is ExternalName"
    elif not service.spec.selector:
        why = "it has no selector"
    elif all(reference.uid != cluster.metadata.uid for reference in meta.owner_references):
        why = f"it is not owned by RayCluster {cluster.metadata.name}"
    else:
        return None
    return (
        f"the dashboard is not asked through Service {meta.name}: {why}; delete it, and "
        "raybus creates the head Service"
    )


def head_addresses(service: Service, slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Return the pod addresses in the EndpointSlices that the head Service owns."""
    own = (
        endpoint_slice
        for endpoint_slice in slices
        if any(
            owner.uid == service.metadata.uid for owner in endpoint_slice.metadata.owner_references
        )
    )
    return frozenset(
        address
        for endpoint_slice in own
        for endpoint in endpoint_slice.endpoints or []
        if endpoint.target_ref is not None and endpoint.target_ref.kind == "Pod"
        for address in endpoint.addresses
    )


def foreign_answer(
    cluster: RayCluster, known: frozenset[str], details: ServeDetails | None
) -> str | None:
    """Return why a dashboard's answer cannot be from this cluster; None if it can be.

    It is from a different cluster if it lists nodes, but none with a `known` address. If any node
    has a Serve proxy, the head has one, so the head's address suffices. Before the first config
    Serve lists no nodes, so the answer cannot be checked.
    """
    if details is None or not details.proxies or not known:
        return None
    named = details.nodes
    if not named or named & known:
        return None
    return (
        f"the dashboard of RayCluster {cluster.metadata.name} names node {min(named)} and "
        "none of the cluster's pods "
        f"({', '.join(sorted(known)[:3])}); no Serve config is sent to it"
    )


def verify_identity(view: V | None, other: V | None) -> V | None:
    """Return `view`, without Serve's answer if it came from the `other` cluster.

    It came from the other cluster if it lists nodes of that cluster and none of this one. This
    happens if a new pod of the other cluster gets the address of a deleted head, to which a
    connection or a DNS name still leads. The answer must not count as this cluster's status, nor
    may this cluster's config be sent to the other one.
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
        condition.type == "HeadPodReady" and condition.status == "True"
        for condition in cluster.status.conditions
    )
