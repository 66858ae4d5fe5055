"""The rig: a fresh control plane for each contender, with a scheduler, simulated pods (kwok) and the audit log on."""

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

CRDS: Final = Path(__file__).parents[2] / "deploy" / "crds"
BACKGROUND: Final = "background"
"""The namespace of the many clusters, or the first of theirs."""
MAX_PER_NAMESPACE: Final = 500
"""Clusters in a namespace: Kubernetes' controllers of endpoints compare each Service with every pod of its namespace, so that with 5,000 clusters in one they
took most of two processors, before anything of an operator was measured."""
ALONE: Final = "alone"
"""The namespace of somebody else."""
USER_AGENT: Final = "bench"


class Rig(msgspec.Struct, frozen=True, kw_only=True):
    """A running control plane and our client to it."""

    control_plane: ControlPlane
    kube: KubeClient
    audit: AuditLog
    work: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, which a contender works with."""
        return self.control_plane.kubeconfig


def namespace_of(index: int) -> str:
    """Return the namespace of one of the many clusters."""
    number = index // MAX_PER_NAMESPACE
    return f"{BACKGROUND}-{number}" if number else BACKGROUND


@asynccontextmanager
async def fresh(crds: Path | None = None, *, clusters: int = 1) -> AsyncGenerator[Rig]:
    """Run a control plane of its own for the length of a `with` block, with the namespaces of so many clusters; `crds` in place of those of raybus."""
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
    """Make a namespace, and wait until pods can be made in it."""

    async def has_account() -> bool:
        try:
            await kube.get(SERVICE_ACCOUNT, name, "default")
        except errors.NotFound:
            return False
        return True

    body: Body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create(NAMESPACE, None, body)
    await eventually_true(has_account, every=0.05, what=f"the ServiceAccount of namespace {name}")
