"""Which nodes of a cluster have a Serve proxy, and at which HTTP port.

Ray fixes `proxy_location` and `http_options` when Serve starts and ignores later edits. So for a
running cluster these settings are taken from Ray's report, and from the config only before the
cluster exists, as in `raybus lint`.

A pod takes requests at its container port named `serve`, or else at 8000; the Services and the
readiness probe of workers use that port, as in KubeRay. If a worker's proxy listens at a different
port, the worker is never Ready, although its replicas serve, so nothing may wait for it.
"""

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from common import pod_json
from common.api.core import Container
from common.api.opaque import Json
from common.ray import ports
from common.ray.serve_status import Location, ServeDetails

_LOCATIONS: Final = {location.value: location for location in Location}


class ServeProxies(msgspec.Struct, frozen=True, kw_only=True):
    """Location and HTTP port of a cluster's Serve proxies."""

    location: Location = Location.EVERY_NODE
    port: int = ports.SERVE

    @property
    def are_disabled(self) -> bool:
        """Return whether the cluster has no proxies, so that no pod takes HTTP requests."""
        return self.location is Location.DISABLED

    def may_be_at(self, container: Container | None) -> bool:
        """Return whether the port that a Ray container declares for Serve is the proxies' port.

        Without a declared port, 8000 counts. If the ports differ, the pod never becomes Ready,
        because its readiness probe asks the declared port.
        """
        declared = () if container is None else container.ports
        numbers = (port.container_port for port in declared if port.name == "serve")
        return next(numbers, ports.SERVE) == self.port

    def are_on_workers_of(self, config: Json) -> bool:
        """Return whether every worker can have a proxy at the port that its container declares.

        If not, some workers never become Ready. `config` is the spec of the RayCluster.
        """
        numbers = (
            port_of(pod_json.ray_container(template)) for template in _worker_templates(config)
        )
        return self.location is Location.EVERY_NODE and all(
            number == self.port for number in numbers
        )

    def is_at(self, address: str, head: str) -> bool:
        """Return whether the node at `address` gets a proxy when it runs a replica.

        `head` is the address of the head.
        """
        return self.location is Location.EVERY_NODE or (
            self.location is Location.HEAD_ONLY and address == head
        )

    def nodes(self, details: ServeDetails, head: str, config: Json) -> frozenset[str]:
        """Return the addresses of the nodes through whose proxies requests reach the replicas.

        `head` is the address of the head, and `config` the spec of the RayCluster.
        """
        if self.are_disabled:
            return frozenset()
        if self.are_on_workers_of(config):
            return details.serving_nodes
        return frozenset({head} - {""})


def asked(config: Json) -> ServeProxies:
    """Return the proxies' settings in a Serve config, with Ray's defaults for missing ones."""
    return _proxies(config.get("proxy_location"), config.get("http_options"))


def reported(details: ServeDetails | None) -> ServeProxies:
    """Return the proxies' settings that Ray reports, with Ray's defaults for missing ones."""
    if details is None:
        return ServeProxies()
    return _proxies(details.proxy_location, details.http_options)


def _proxies(location: object, options: object) -> ServeProxies:
    port = cast("Json", options).get("port") if isinstance(options, dict) else None
    known = _LOCATIONS.get(location) if isinstance(location, str) else None
    return ServeProxies(
        location=known or Location.EVERY_NODE,
        port=port if isinstance(port, int) and not isinstance(port, bool) else ports.SERVE,
    )


def port_of(container: Json) -> int:
    """Return the port for HTTP requests that a Ray container declares, or else 8000."""
    return (pod_json.named(container, "ports", "serve") or {}).get("containerPort") or ports.SERVE


def mismatches(proxies: ServeProxies, config: Json) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the pod templates that need a proxy but do not declare the port of `proxies`.

    Each item is the path of the template's group in the RayCluster spec, and a message that says
    how to correct it.
    """
    if proxies.are_disabled:
        return
    templates = {("headGroupSpec",): pod_json.body(ports.head_group(config), "template")}
    if proxies.location is Location.EVERY_NODE:
        workers = enumerate(_worker_templates(config))
        templates |= {("workerGroupSpecs", at): template for at, template in workers}
    for place, template in templates.items():
        number = port_of(pod_json.ray_container(template))
        if number != proxies.port:
            yield (
                place,
                f"Serve listens on port {proxies.port} (http_options.port), and these pods are "
                f"asked at port {number}: the Ray container needs a port named serve, "
                f"{{name: serve, containerPort: {proxies.port}}}",
            )


def unreachable(proxies: ServeProxies, config: Json, *, excludes_head: bool) -> str | None:
    """Return why no request can reach a cluster's applications; None if requests can reach them.

    `config` is the spec of the RayCluster. `excludes_head` is whether the RayService excludes the
    head from its Serve Service.
    """
    if proxies.are_disabled:
        return (
            "Serve has no proxy (proxy_location: Disabled), so no request reaches its applications "
            "by a Service or a route; set proxy_location to EveryNode or HeadOnly in a new cluster"
        )
    places = dict(mismatches(proxies, config))
    head = places.get(("headGroupSpec",))
    if proxies.location is Location.HEAD_ONLY and excludes_head:
        return (
            "the only proxy is on the head (proxy_location: HeadOnly), and "
            "spec.excludeHeadPodFromServeSvc keeps requests from it; set one of them otherwise"
        )
    if head is None or proxies.are_on_workers_of(config):
        return None
    return f"the head: {head}"


def _worker_templates(config: Json) -> list[Json]:
    groups = pod_json.bodies(config, "workerGroupSpecs")
    return [pod_json.body(group, "template") for group in groups]
