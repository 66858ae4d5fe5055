"""Decode the status that Ray Serve reports, and draw conclusions from it.

Only fields that a decision needs are decoded, and all are optional, because Ray releases differ. A
status alone proves nothing: an app may be RUNNING and its deployment HEALTHY without any running
replica, and the proxy of a worker without replicas is draining. The answer is untrusted, so numbers
are limited to a plausible range. Spec rayservice §12.4.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from itertools import chain, islice
from typing import Annotated, Any, Final, cast

import msgspec

from common import errors
from common.api.opaque import Json
from common.untrusted import clipped, outside_of_strings

DEFAULT_APP: Final = "default"
"""The name that users see for an application without a name."""


class AppState(StrEnum):
    """The states of an application on which decisions depend; Ray has more states."""

    RUNNING = "RUNNING"
    DELETING = "DELETING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    UNHEALTHY = "UNHEALTHY"


class Location(StrEnum):
    """Where Serve runs proxies (`proxy_location`)."""

    EVERY_NODE = "EveryNode"
    """Proxies (also HAProxy) run on the head and on each node with a replica."""
    HEAD_ONLY = "HeadOnly"
    DISABLED = "Disabled"
    """No proxies run; applications are called from Python only."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a deployment."""

    state: str = ""
    node_id: str | None = None
    node_ip: str | None = None
    start_time_s: Annotated[float, msgspec.Meta(ge=0, le=2**33)] | None = None
    """When the replica started, in seconds since 1970."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One deployment of an application."""

    status: str = ""
    message: str = ""
    target_num_replicas: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    replicas: list[Replica] | None = None
    deployment_config: Json | None = None
    """The effective options, including those that the application's code sets."""

    @cached_property
    def running(self) -> tuple[Replica, ...]:
        """Return the replicas in the state RUNNING."""
        return tuple(replica for replica in self.replicas or () if replica.state == "RUNNING")


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """One Serve application."""

    status: str = ""
    message: str = ""
    deployments: dict[str, Deployment] = {}
    deployed_app_config: Json | None = None
    """The application's part of the config sent to Ray; None if Python code deployed it."""

    @property
    def has_failed(self) -> bool:
        """Return whether the application is DEPLOY_FAILED or UNHEALTHY."""
        return self.status in {AppState.DEPLOY_FAILED, AppState.UNHEALTHY}


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP proxy on one node."""

    status: str = ""
    node_ip: str | None = None


class ServeDetails(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The answer to `GET /api/serve/applications/`."""

    applications: dict[str, Application] = {}
    proxies: dict[str, Proxy] | None = None
    proxy_location: str | None = None
    target_capacity: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    http_options: Json | None = None
    grpc_options: Json | None = None

    def named(self) -> dict[str, Application]:
        """Return the applications by the names that users see."""
        return {name or DEFAULT_APP: app for name, app in self.applications.items()}

    @cached_property
    def serving_nodes(self) -> frozenset[str]:
        """Return the addresses of the nodes with a running replica, as Ray reports them."""
        return frozenset(
            replica.node_ip
            for app in self.applications.values()
            for deployment in app.deployments.values()
            for replica in deployment.running
            if replica.node_ip
        )

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Return the addresses of nodes with a proxy or a running replica, as Ray reports them."""
        proxies = (self.proxies or {}).values()
        return self.serving_nodes.union(proxy.node_ip for proxy in proxies if proxy.node_ip)


MAX_REASON_LENGTH: Final = 500
"""Characters after which messages cut off a dashboard's text that they quote."""
MAX_PARTS: Final = 100_000
"""Maximum JSON values in one answer; an answer with ten thousand replicas has fewer."""
MAX_NAMED_PARTS: Final = 5_000
"""Maximum applications and deployments together. It bounds the time that each poll takes."""
DEEPEST: Final = 64
"""Maximum levels of nesting of an application's config; Ray's schema needs ten."""


def decode(body: bytes) -> ServeDetails:
    """Decode a dashboard's untrusted answer.

    Raises `Unavailable` if the answer is not a Serve status or exceeds the limits.
    """
    # Marks in strings must not count: a traceback has many commas.
    if _parts(body) > MAX_PARTS and _parts(outside_of_strings(body)) > MAX_PARTS:
        raise _absurd(f"it has more than {MAX_PARTS} values")
    try:
        details = msgspec.json.decode(body, type=ServeDetails)
    except RecursionError:
        raise _absurd("it is nested too deeply") from None
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
    ) as problem:  # msgspec does not wrap UnicodeDecodeError
        raise _absurd(str(problem)) from problem
    if (
        sum(1 + len(app.deployments or {}) for app in details.applications.values())
        > MAX_NAMED_PARTS
    ):
        raise _absurd(f"it has more than {MAX_NAMED_PARTS} applications and deployments")
    opaque = [details.http_options, details.grpc_options]
    opaque += [app.deployed_app_config for app in details.applications.values()]
    if any(True for _ in islice(levels(opaque), DEEPEST, None)):
        raise _absurd(f"it is nested deeper than {DEEPEST} levels")
    return details


def _parts(text: bytes) -> int:
    return sum(text.count(mark) for mark in (b"{", b"[", b","))


def _absurd(problem: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the dashboard's answer is not Serve status: {clipped(problem, MAX_REASON_LENGTH)}"
    )


def levels(values: list[Any]) -> Iterator[list[Any]]:
    """Yield `values`, then a list of all values nested in them, and so on level by level."""
    while values:
        yield values
        objects = [cast("Json", value).values() for value in values if isinstance(value, dict)]
        lists = [cast("list[Any]", value) for value in values if isinstance(value, list)]
        values = [*chain(*objects, *lists)]


def of_applications(details: ServeDetails, names: frozenset[str]) -> ServeDetails:
    """Return the status with only the applications in `names`; with all if `names` is empty.

    Ray also lists applications that Python code deployed, and applications that are no longer in
    the config but have running replicas. Both are irrelevant to whether a config is served.
    """
    kept = {
        name: app
        for name, app in details.applications.items()
        if not names or (name or DEFAULT_APP) in names
    }
    if len(kept) == len(details.applications):
        return details
    return msgspec.structs.replace(details, applications=kept)


def is_running(details: ServeDetails) -> bool:
    """Return whether there are applications and all are RUNNING, which is KubeRay's readiness."""
    apps = details.applications.values()
    return bool(apps) and all(app.status == AppState.RUNNING for app in apps)


def running_percent(details: ServeDetails) -> int:
    """Return the percentage of target replicas that run, for the deployment where it is lowest.

    100 if no deployment reports replicas and their target number.
    """
    shares = [
        len(deployment.running) * 100 // deployment.target_num_replicas
        for app in details.applications.values()
        for deployment in app.deployments.values()
        if deployment.replicas is not None and deployment.target_num_replicas
    ]
    return min([100, *shares])


def capacity(details: ServeDetails) -> float:
    """Return the target capacity of Serve, in percent; 100 if none is set."""
    return 100.0 if details.target_capacity is None else details.target_capacity


def missing(details: ServeDetails, asked: frozenset[str]) -> str | None:
    """Return a message if an application in `asked` is unknown to Serve, or else None."""
    unknown = sorted(asked - set(details.named()))
    return f"application {unknown[0]} is not deployed yet" if unknown else None


def not_serving(details: ServeDetails) -> str | None:
    """Return why an application does not serve yet; None if all applications serve."""
    if not details.applications:
        return "no application is deployed"
    for name, app in sorted(details.named().items()):
        if app.status != AppState.RUNNING:
            return f"application {name} is {app.status or 'unknown'}"
        for deployment_name, deployment in sorted(app.deployments.items()):
            running, target = len(deployment.running), deployment.target_num_replicas
            if deployment.replicas is not None and target is not None and running < target:
                few = f"{running} of {target} replicas running"
                return f"deployment {deployment_name} of application {name} has {few}"
    return unproxied(details)


def has_no_proxy(details: ServeDetails) -> bool:
    """Return whether Serve reports its proxies and none of them is healthy."""
    if details.proxies is None or details.proxy_location == Location.DISABLED:
        return False
    return not any(proxy.status == "HEALTHY" for proxy in details.proxies.values())


def unproxied(details: ServeDetails) -> str | None:
    """Return a message if no proxy is healthy, or a node with replicas lacks one; else None."""
    if has_no_proxy(details):
        return "no proxy is healthy"
    if details.proxies is None or details.proxy_location != Location.EVERY_NODE:
        return None
    healthy = {proxy.node_ip for proxy in details.proxies.values() if proxy.status == "HEALTHY"}
    missing = sorted(details.serving_nodes - healthy)
    return f"the proxy on node {missing[0]} is not healthy" if missing else None
