"""A bare control plane, into which the CRDs are applied as a user applies them."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Json
from localcluster.control_plane import ControlPlane
from support.servers.programs import prepared

CRDS = Path(__file__).parents[3] / "deploy" / "crds"


class Kubectl(msgspec.Struct, frozen=True, kw_only=True):
    """The real kubectl as cluster-admin."""

    program: Path
    kubeconfig: Path

    def run(self, *arguments: str, obj: Json | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command, with an object on standard input."""
        argv = [str(self.program), f"--kubeconfig={self.kubeconfig}", *arguments]
        text = "" if obj is None else msgspec.json.encode(obj).decode()
        return subprocess.run(
            argv, input=text, capture_output=True, text=True, check=False, timeout=60
        )

    def ok(self, *arguments: str, obj: Json | None = None) -> str:
        """Run a command that must succeed; return what it prints."""
        done = self.run(*arguments, obj=obj)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stored(self, kind: str, name: str) -> Json:
        """Return an object as the API server holds it."""
        return msgspec.json.decode(self.ok("get", kind, name, "-o", "json"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    """Run a control plane without our CRDs."""
    async with ControlPlane.started(tmp_path_factory.mktemp("crds")) as running:
        yield Kubectl(program=prepared("kubectl"), kubeconfig=running.kubeconfig)


@pytest.fixture(scope="module")
def kubectl(bare: Kubectl) -> Kubectl:
    """Apply the CRDs client-side and wait until they are served."""
    bare.ok("apply", "-k", str(CRDS))
    names = {
        "RayCluster": "crd/rayclusters.ray.io",
        "RayService": "crd/rayservices.ray.io",
        "RayJob": "crd/rayjobs.ray.io",
        "UpgradePolicy": "crd/upgradepolicies.raybus.io",
    }
    for (
        kind,
        name,
    ) in names.items():  # kubectl cannot wait for a condition of a definition that has none yet
        bare.ok(
            "wait", f"--for=jsonpath={{.status.acceptedNames.kind}}={kind}", "--timeout=20s", name
        )
    bare.ok("wait", "--for=condition=Established", "--timeout=20s", *names.values())
    return bare
