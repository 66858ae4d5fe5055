"""Writes the objects of this folder anew, made by a real KubeRay operator on a real control plane, and compares ours with them.

    PYTHONPATH=tests .venv/bin/python tests/golden/kuberay/dump.py --operator PATH --crds FOLDER [--setting NAME] [--manifests FOLDER]

PATH is the operator built from KubeRay's source (`cd ray-operator && go build .`), FOLDER its `config/crd/bases`. For each
setting: KubeRay makes the clusters; we take them over and nothing may change; we make the same clusters and nothing may
differ; KubeRay takes ours over and no pod may go. With `--manifests` the clusters are those of another folder, such as
KubeRay's samples, and no file is written.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import yaml
from rich.console import Console

from common.kube.client import KubeClient
from integration.cluster_reconciler.conftest import running
from localcluster.api import ApiClient, Document, read_manifests
from localcluster.control_plane import ControlPlane
from localcluster.errors import ClusterError
from support.kuberay import goldens, objects
from support.kuberay.certifying import certify
from support.kuberay.placing import place
from support.kuberay.settings import SETTINGS, Setting

CRDS: Final = Path(__file__).parents[2] / "support" / "crds"
TIMEOUT: Final = 240.0

emit: Final = Console(soft_wrap=True, markup=False, highlight=False).print


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The command line."""

    operator: Path
    crds: Path
    setting: str | None
    manifests: Path | None
    quiet: float


def main() -> int:
    """Read the command line; return how many differences there are, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--operator", type=Path, required=True, help="the operator's program")
    parser.add_argument("--crds", type=Path, required=True, help="KubeRay's config/crd/bases")
    parser.add_argument("--setting", choices=[each.name for each in SETTINGS], help="only this one")
    parser.add_argument("--manifests", type=Path, help="other RayClusters; nothing is written")
    parser.add_argument(
        "--quiet", type=float, default=5.0, help="seconds without a change after which all is done"
    )
    given = Given(**vars(parser.parse_args()))
    found = 0
    for setting in SETTINGS:
        if given.setting in {None, setting.name}:
            found += asyncio.run(_work(setting, given))
    return 1 if found else 0


async def _work(setting: Setting, given: Given) -> int:
    users = goldens.users(given.manifests or setting.folder)
    with tempfile.TemporaryDirectory() as folder:
        crds = _small(given.crds, Path(folder) / "crds")
        async with (
            ControlPlane.started(
                Path(folder) / "run", crds=crds, scheduler=True, kwok_nodes=1
            ) as control_plane,
            control_plane.api() as api,
        ):
            await api.apply_definitions(read_manifests(CRDS))
            kube = await KubeClient.connect(
                kubeconfig=control_plane.kubeconfig, user_agent="raybus-dump"
            )
            try:
                rig = Rig(setting, control_plane, api, kube, given)
                theirs = await rig.theirs(users)
                if given.manifests is None:
                    for path in goldens.save(setting, theirs):
                        emit(f"{setting.name}: wrote {path.name}")
                return _report(setting, await rig.found(users, theirs))
            finally:
                await kube.close()


def _small(crds: Path, folder: Path) -> Path:
    """Copy KubeRay's definitions without prose and old versions, which a busy API server takes too long to read."""
    folder.mkdir()
    for document in read_manifests(crds):
        spec = document["spec"]
        spec["versions"] = [
            _terse(version) for version in spec["versions"] if version["name"] == "v1"
        ]
        (folder / f"{document['metadata']['name']}.yaml").write_bytes(msgspec.json.encode(document))
    return folder


def _terse(schema: Any) -> Any:
    if isinstance(schema, dict):
        fields = cast("Document", schema)
        return {
            key: _terse(each)
            for key, each in fields.items()
            if key != "description" or isinstance(each, dict)
        }
    return (
        [_terse(each) for each in cast("list[Any]", schema)] if isinstance(schema, list) else schema
    )


class Rig:
    """Both operators on one control plane, one after the other."""

    def __init__(
        self,
        setting: Setting,
        control_plane: ControlPlane,
        api: ApiClient,
        kube: KubeClient,
        given: Given,
    ) -> None:
        self._setting = setting
        self._control_plane = control_plane
        self._api = api
        self._kube = kube
        self._program = given.operator
        self._quiet = given.quiet

    async def theirs(self, users: Sequence[Document]) -> objects.Objects:
        """Let KubeRay make all clusters; return what there is."""
        async with self._kuberay():
            await self._apply(users, goldens.NAMESPACE)
            return await self._stable(goldens.NAMESPACE)

    async def found(self, users: Sequence[Document], theirs: objects.Objects) -> list[str]:
        """Take KubeRay's clusters over, make the same, hand both to KubeRay; return what differs."""
        async with running(self._control_plane, self._setting.config(), is_alone=False) as live:
            await self._stable(goldens.NAMESPACE)
            found = _changed("take-over by us", theirs, await self._stable(goldens.NAMESPACE))
            await self._apply(users, live.namespace)
            ours = await self._stable(live.namespace)
        found += [f"stray: {each}" for each in goldens.strays(ours, users)]
        found += objects.differences(objects.comparable(theirs), objects.comparable(ours))
        async with self._kuberay():
            found += _changed("take-over by KubeRay", ours, await self._stable(live.namespace))
        return found

    async def _apply(self, users: Sequence[Document], namespace: str) -> None:
        await self._api.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        await self._api.wait_for(
            "the namespace",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/default",
            lambda _: True,
            timeout=10,
        )
        for document in users:
            meta = {**document["metadata"], "namespace": namespace}
            try:
                await self._api.apply({**document, "metadata": meta}, timeout=0)
            except ClusterError as problem:
                emit(f"{self._setting.name}: {problem}")

    async def _stable(self, namespace: str) -> objects.Objects:
        """Read the objects of a namespace when they have not changed for a while."""
        loop = asyncio.get_running_loop()
        others = [
            asyncio.ensure_future(each(self._kube, namespace))  # noqa: TID251  (a tool, not a service)
            for each in (place, certify)
        ]
        try:
            deadline, quiet_since, last = (
                loop.time() + TIMEOUT,
                loop.time(),
                list[tuple[str, str]](),
            )
            while loop.time() - quiet_since < self._quiet and loop.time() < deadline:
                await asyncio.sleep(0.3)
                found = await objects.read(self._kube, namespace)
                versions = [
                    (each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in found
                ]
                if versions != last:
                    last, quiet_since = versions, loop.time()
            return await objects.read(self._kube, namespace)
        finally:
            for each in others:
                each.cancel()

    @asynccontextmanager
    async def _kuberay(self) -> AsyncGenerator[None]:
        """Run KubeRay's operator for the length of a block."""
        setting = self._setting
        flags = [
            "--metrics-addr=0",
            "--health-probe-bind-address=0",
            "--enable-leader-election=false",
        ]
        flags.append("--reconcile-concurrency=4")
        gates = ["RayServiceIncrementalUpgrade=false", *([setting.gates] if setting.gates else [])]
        flags += [
            f"--feature-gates={','.join(gates)}",
            f"--batch-scheduler={setting.batch_scheduler}",
        ]
        if setting.operator_file is not None:
            own = {"metricsAddr": "0", "probeAddr": "0", "enableLeaderElection": False}
            merged = self._control_plane.kubeconfig.parent / "operator.yaml"
            merged.write_text(
                yaml.safe_dump({**yaml.safe_load(setting.operator_file.read_text()), **own})
            )
            flags.append(f"--config={merged}")
        environment = {
            **os.environ,
            **setting.environment,
            "KUBECONFIG": str(self._control_plane.kubeconfig),
        }
        log = self._control_plane.kubeconfig.parent / "logs" / "kuberay.log"
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                self._program, *flags, env=environment, stdout=out, stderr=out
            )
        try:
            yield
            assert process.returncode is None, f"KubeRay ended:\n{log.read_text()[-4000:]}"
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def _changed(when: str, before: objects.Objects, after: objects.Objects) -> list[str]:
    """Return what is not the very same object in the very same version, RayClusters aside."""
    versions = [
        {_key(each): each["metadata"]["resourceVersion"] for each in some}
        for some in (before, after)
    ]
    return [
        f"{when}: {line}" for line in objects.differences(*versions) if " RayCluster " not in line
    ] + [
        f"{when}: {line}"
        for line in objects.differences(*(_statuses(some) for some in (before, after)))
    ]


def _key(body: Document) -> str:
    return (
        f"{body['apiVersion']} {body['kind']} {body['metadata']['name']} {body['metadata']['uid']}"
    )


def _statuses(some: objects.Objects) -> dict[str, object]:
    return {
        each["metadata"]["name"]: each.get("status")
        for each in some
        if each["kind"] == "RayCluster"
    }


def _report(setting: Setting, found: Sequence[str]) -> int:
    for line in found:
        emit(f"{setting.name}: {line}")
    emit(f"{setting.name}: {len(found)} differences")
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
