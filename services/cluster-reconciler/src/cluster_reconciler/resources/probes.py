"""Liveness and readiness of the Ray container, where the user's template leaves them out.

From Ray 2.53 the agent answers one HTTP path; before that a shell asks the raylet and, on the head, the GCS. Workers
that serve requests are ready only when their Serve proxy is.
Behaviour: spec raycluster §11.10; acceptance cases 95-96.
"""

from collections.abc import Mapping
from typing import Final

from cluster_reconciler.resources.node import Node
from common import pod_json, ports
from common.api.opaque import Body
from common.ray import cluster_traits as traits
from common.ray import version as ray_version

_UNIFIED_SINCE: Final = (2, 53)


def complete(pod: Body, node: Node, params: Mapping[str, str]) -> None:
    """Give the Ray container those probes that it lacks."""
    if not node.config.injects_probes:
        return
    container = pod_json.ray_container(pod)
    if container.get("livenessProbe") is None:
        container["livenessProbe"] = {
            "initialDelaySeconds": 30,
            **_rhythm(node, failures=120),
            **_handler(node, params),
        }
    if container.get("readinessProbe") is None:
        container["readinessProbe"] = {"initialDelaySeconds": 10, **_readiness(container, node, params)}


def _readiness(container: Body, node: Node, params: Mapping[str, str]) -> Body:
    if node.is_head or not traits.is_for_a_service(node.cluster):
        return {**_rhythm(node, failures=10), **_handler(node, params)}
    serve = pod_json.port_named(container, "serve") or ports.SERVE
    return {**_rhythm(node, failures=1), **_shell(_raylet_check(params), _ask(serve, "-/healthz", seconds=10))}


def _rhythm(node: Node, *, failures: int) -> Body:
    return {
        "timeoutSeconds": 5 if node.is_head else 2,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def _handler(node: Node, params: Mapping[str, str]) -> Body:
    if ray_version.is_at_least(node.cluster.spec.ray_version, _UNIFIED_SINCE):
        return {"httpGet": {"path": "/api/healthz", "port": _agent_port(params)}}
    if not node.is_head:
        return _shell(_raylet_check(params))
    dashboard = traits.port_param(params, "dashboard-port", ports.DASHBOARD)
    return _shell(_raylet_check(params), _ask(dashboard, "api/gcs_healthz", seconds=10))


def _raylet_check(params: Mapping[str, str]) -> str:
    return _ask(_agent_port(params), "api/local_raylet_healthz", seconds=2)


def _agent_port(params: Mapping[str, str]) -> int:
    return traits.port_param(params, "dashboard-agent-listen-port", ports.DASHBOARD_AGENT)


def _ask(port: int, path: str, *, seconds: int) -> str:
    return f"wget --tries 1 -T {seconds} -q -O- http://localhost:{port}/{path} | grep success"


def _shell(*commands: str) -> Body:
    return {"exec": {"command": ["bash", "-c", " && ".join(commands)]}}
