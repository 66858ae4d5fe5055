"""Starts a new control plane for a measurement: scheduler, simulated pods (kwok), audit log."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.audit import AuditLog
from common import errors
from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import NAMESPACE, SERVICE_ACCOUNT
from localcluster.control_plane import ControlPlane
from support.waiting import eventually_true

CRDS: Final = Path(__file__).parents[3] / "deploy" / "crds"
BACKGROUND: Final = "background"
"""The first namespace of the clusters that a benchmark creates.

More than `MAX_PER_NAMESPACE` clusters are spread over several namespaces (`namespace_of`).
"""
MAX_PER_NAMESPACE: Final = 500
"""Maximum clusters in a namespace.

The endpoint controllers of Kubernetes compare each Service with every pod of its namespace. With
5,000 clusters in one namespace they took most of two processors, whatever the operator did.
"""
ALONE: Final = "alone"
"""A namespace without load, like that of a second user."""
USER_AGENT: Final = "bench"


class Rig(msgspec.Struct, frozen=True, kw_only=True):
    """A running control plane, a client for it, its audit log, and a folder for the run's files."""

    control_plane: ControlPlane
    kube: KubeClient
    audit: AuditLog
    work: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, which the operator under test uses."""
        return self.control_plane.kubeconfig


def namespace_of(index: int) -> str:
    """Return the namespace of the load's cluster with this index."""
    number = index // MAX_PER_NAMESPACE
    return f"{BACKGROUND}-{number}" if number else BACKGROUND


@asynccontextmanager
async def fresh(crds: Path | None = None, *, clusters: int = 1) -> AsyncGenerator[Rig]:
    """Run a new control plane during the `with` block, with namespaces for `clusters` clusters.

    `crds` is a folder of CRDs to install instead of raybus's.
    """
    with tempfile.TemporaryDirectory(prefix="raybus-bench-") as folder:
        work = Path(folder)
        starting = ControlPlane.started(
            work / "cp", crds=crds or CRDS, scheduler=True, kwok_nodes=1, audit=True
        )
        async with starting as control_plane:
            kube = await KubeClient.connect(
                kubeconfig=control_plane.kubeconfig, user_agent=USER_AGENT
            )
            try:
                for name in (*map(namespace_of, range(0, clusters, MAX_PER_NAMESPACE)), ALONE):
                    await _add_namespace(kube, name)
                yield Rig(
                    control_plane=control_plane,
                    kube=kube,
                    audit=AuditLog(control_plane.audit_log),
                    work=work,
                )
            finally:
                await kube.close()


async def _add_namespace(kube: KubeClient, name: str) -> None:
    """Create a namespace and wait until pods can be created in it."""

    async def has_account() -> bool:
        try:
            await kube.get(SERVICE_ACCOUNT, name, "default")
        except errors.NotFound:
            return False
        return True

    body: Body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create(NAMESPACE, None, body)
    await eventually_true(has_account, every=0.05, what=f"the ServiceAccount of namespace {name}")
