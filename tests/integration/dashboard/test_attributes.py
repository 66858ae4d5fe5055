"""The attributes of a request are those that a real API server writes into its audit log."""

from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Final

from common import errors
from common.kube.client import KubeClient
from localcluster.control_plane import ControlPlane
from raybus_dashboard.incluster import attributes
from raybus_dashboard.incluster.attributes import Attributes, Unparsable
from support import audit_log
from support.audit_log import Line

NAMES: Final = ("x", "proxy", "status", "watch", "log", "finalize", "namespaces", "pods")
"""Legal names of objects, most of which mean something elsewhere in a path."""
KINDS: Final = ("/api/v1", "/apis/ray.io/v1")


def paths() -> set[str]:
    """Return paths in which each word stands in each place."""
    namespaced = [f"{kind}/namespaces/{space}" for kind, space in product(KINDS, NAMES)]
    tails = ["", *(f"/{name}" for name in NAMES)]
    tails += [f"/{name}/{part}" for name, part in product(NAMES, NAMES)]
    tails += [f"/{name}/proxy/{part}" for name, part in product(NAMES, NAMES)]
    named = {f"{start}/pods{tail}" for start, tail in product((*namespaced, *KINDS), tails)}
    return named | {f"{start}/{name}" for start, name in product(namespaced, NAMES)}


def audited(line: Line) -> Attributes:
    ref = line.object_ref
    return Attributes(
        verb=line.verb,
        group=ref.api_group,
        version=ref.api_version,
        resource=ref.resource,
        subresource=ref.subresource,
        namespace=ref.namespace,
        name=ref.name,
    )


async def test_attributes_are_those_of_the_audit_log(tmp_path: Path) -> None:
    parsed: dict[str, Attributes] = {}
    for path in sorted(paths()):
        with suppress(Unparsable):
            parsed[path] = attributes.parse("GET", path)
    async with ControlPlane.started(tmp_path, audit=True) as control_plane:
        kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="names")
        try:
            for path in parsed:
                with suppress(errors.RaybusError):  # hardly any of these objects exists
                    await kube.request("GET", path)
        finally:
            await kube.close()
        lines = {line.request_uri: line for line in audit_log.lines(control_plane.audit_log)}
    assert len(parsed) > 1000
    assert {path: audited(lines[path]) for path in parsed} == parsed
