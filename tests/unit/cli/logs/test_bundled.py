"""The logs of deleted pods: from an archive of `raybus bundle`, and after an upgrade removed their
cluster.
"""

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from common import errors
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE
from raybus_cli import kubeconfig, main, session
from raybus_cli.bundling import cli, kept_logs
from raybus_cli.doctor import checks, survey
from raybus_cli.doctor.facts import Facts
from raybus_cli.kubeconfig import KubeAccess
from support.builders import snapshots
from support.builders.snapshots import (
    BLUE,
    GREEN,
    NOW,
    STEPS,
    UPGRADING,
    a_cluster,
    a_config,
    a_pod,
    a_side,
)
from support.fakes.kube import FakeKube
from support.tables import cases
from support.upgrade_events import RECEIPT

HEAD, WORKER = f"{BLUE}-head-aaaaa", f"{BLUE}-gpu-worker-00001"
PENDING_HEAD = f"{GREEN}-head-aaaaa"
MADE = "raybus logs: from a bundle that was made 2026-01-01T12:30:00Z, with the last 2000 lines of each log\n"


class Server(FakeKube):
    """An API server with an upgrading RayService, and the logs of its pods."""

    def __init__(self) -> None:
        super().__init__(now=lambda: NOW)
        service = snapshots.a_service(
            UPGRADING,
            active=a_side(BLUE),
            pending=a_side(GREEN),
            upgradeStrategy=STEPS,
            annotations=self.receipt(),
        )
        self.put(RAY_SERVICE, service)
        for name in (BLUE, GREEN):
            self.put(RAY_CLUSTER, a_cluster(name, a_config()))
        for pod in (a_pod(BLUE, "gpu", 1), a_pod(BLUE, "head"), a_pod(GREEN, "head")):
            self.put(POD, pod)
        meshed = [{"name": "mesh-proxy"}, {"name": "ray-head"}]
        self.put(POD, a_pod(GREEN, "head") | {"spec": {"containers": meshed}})

    @staticmethod
    def receipt() -> dict[str, str]:
        """Return the annotation of the last upgrade."""
        return {"raybus.io/upgrade-receipt": msgspec.json.encode(RECEIPT).decode()}

    async def request(
        self, _method: str, path: str, *, query: Mapping[str, str] | None = None, **_more: Any
    ) -> bytes:
        """Answer with the log of a pod, and with no object of another namespace."""
        if path.endswith("/log"):
            assert query is not None
            assert int(query["limitBytes"]) <= kept_logs.MAX_LOG_SIZE
            pod = path.split("/")[-2]
            return f"first of {pod}\n\x1b[2Jsecond\nDB_PASSWORD=hunter2".encode()
        return b'{"items": []}'

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


def _no_checks(*_: Any, **__: Any) -> list[Any]:
    return []


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def connect(_place: KubeAccess) -> Server:
        return Server()

    async def facts(*_: Any) -> Facts:
        return Facts(namespace="raybus")

    def find(*_: Any, **__: Any) -> KubeAccess:
        return KubeAccess(kubeconfig=None)

    monkeypatch.setattr(session, "connect", connect)
    monkeypatch.setattr(session, "read_clock", lambda: NOW)
    monkeypatch.setattr(survey, "read_installation", facts)
    monkeypatch.setattr(checks, "check_all", _no_checks)
    monkeypatch.setattr(kubeconfig, "find", find)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a bundle as a user does; the cluster does not exist any more."""
    assert _type("bundle demo -f b.tar.gz").exit_code == 0

    def find(*_: Any, **__: Any) -> KubeAccess:
        raise AssertionError("a bundle needs no cluster")

    monkeypatch.setattr(kubeconfig, "find", find)
    return "b.tar.gz"


def _type(command: str) -> Result:
    arguments = command.split()
    return CliRunner().invoke(main.build(arguments[0]), arguments)


@cases(
    ("options", "lines"),
    {
        "the head of the active cluster": (
            "",
            [f"first of {HEAD}", "second", "DB_PASSWORD=(removed)"],
        ),
        "the end of the pending one's": ("--cluster pending --tail 1", ["DB_PASSWORD=(removed)"]),
        "a cluster by name": (f"--cluster {GREEN} --tail 0", []),
        "all pods": (
            "--all --tail 1",
            [f"[pod/{each}/ray] DB_PASSWORD=(removed)" for each in (HEAD, WORKER)],
        ),
        "the workers": ("--workers", [f"first of {WORKER}", "second", "DB_PASSWORD=(removed)"]),
        "a group": (
            "--group gpu --tail 9",
            [f"first of {WORKER}", "second", "DB_PASSWORD=(removed)"],
        ),
    },
)
def test_the_logs_of_a_bundle_are_those_of_the_cluster(
    bundle: str, options: str, lines: list[str]
) -> None:
    done = _type(f"logs demo --bundle {bundle} {options}")
    assert (done.exit_code, done.stderr, done.stdout.splitlines()) == (0, MADE, lines)


def test_a_cluster_and_documents(bundle: str) -> None:
    done = _type(f"logs raycluster/{BLUE} --bundle {bundle} -o json")
    assert json.loads(done.stdout.splitlines()[0]) == {
        "pod": HEAD,
        "container": "ray",
        "line": f"first of {HEAD}",
    }


def test_the_log_is_that_of_ray_although_a_mesh_has_put_its_proxy_first(bundle: str) -> None:
    done = _type(f"logs demo --cluster pending --tail 1 --bundle {bundle} -o json")
    (line,) = done.stdout.splitlines()
    assert json.loads(line) == {
        "pod": PENDING_HEAD,
        "container": "ray-head",
        "line": "DB_PASSWORD=(removed)",
    }


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("other", 1, "the bundle is of RayService demo, not of other"),
        ("raycluster/far", 1, f"the bundle has no logs of RayCluster far; it has {BLUE}, {GREEN}"),
        ("demo --pod nobody", 1, f"RayCluster {BLUE} has no pod nobody"),
        (
            "demo -f --since 5m",
            2,
            "-f and --since cannot be used with --bundle, which has the end of each log",
        ),
        ("demo --app app", 2, "--app cannot be used with --bundle"),
    ],
)
def test_what_a_bundle_has_not_is_refused(
    bundle: str, command: str, code: int, message: str
) -> None:
    done = _type(f"logs {command} --bundle {bundle}")
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr


def _archive(**files: bytes) -> bytes:
    return cli.build_archive(
        {name.replace("__", "/"): text.decode() for name, text in files.items()}, "b", now=NOW
    )


def _link() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo(f"b/{kept_logs.INDEX}")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    return buffer.getvalue()


@cases(
    ("content", "message"),
    {
        "no file": (None, "cannot read --bundle odd: No such file or directory"),
        "no archive": (b"text", "--bundle odd is no tar.gz"),
        "a part of an archive": (_archive(x=b"y" * 100_000)[:-10], "--bundle odd is no tar.gz"),
        "another archive": (_archive(x=b"y"), "--bundle odd has no logs of Ray's pods"),
        "a link": (_link(), "--bundle odd has no logs of Ray's pods"),
        "a bad index": (
            _archive(**{"logs__index.json": b'{"made": 1}'}),
            "index.json cannot be read",
        ),
    },
)
def test_a_file_that_is_no_bundle_is_a_misuse(content: bytes | None, message: str) -> None:
    if content is not None:
        Path("odd").write_bytes(content)
    done = _type("logs demo --bundle odd")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("limit", "value"), [("MAX_SIZE", 99_999), ("MAX_FILES", 1)])
def test_a_bundle_is_bounded(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_logs, limit, value)
    (tmp_path / "odd").write_bytes(_archive(x=b"y" * 100_000, z=b"z"))
    with pytest.raises(errors.InvalidSpec, match="is not made by 'raybus bundle'"):
        kept_logs.read(tmp_path / "odd")


def test_a_bundle_keeps_the_logs_of_heads_before_those_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_logs, "MAX_PODS", 2)
    _type("bundle demo -f b.tar.gz")
    kept = kept_logs.read(Path("b.tar.gz")).index.logs
    assert {each.pod for each in kept} == {HEAD, PENDING_HEAD}
    with tarfile.open("b.tar.gz") as tar:
        unseen = tar.extractfile("raybus-bundle-demo/unseen.txt")
        assert unseen is not None
        assert f"log of {WORKER}: only those of 2 pods are kept" in unseen.read().decode()


@pytest.mark.parametrize("command", [f"demo --cluster {RECEIPT.old}", f"raycluster/{RECEIPT.old}"])
def test_a_cluster_that_an_upgrade_replaced_is_gone_since_then(command: str) -> None:
    done = _type(f"logs {command}")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: RayCluster {RECEIPT.old} is gone since 2026-01-01T12:04:20Z: the upgrade to {RECEIPT.new} replaced it; "
        "its logs went with its pods; --bundle FILE reads those that 'raybus bundle' kept\n"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("demo --cluster far", f"RayService demo has no RayCluster far; it has {BLUE}, {GREEN}"),
        (
            f"raycluster/{RECEIPT.new}",
            f'rayclusters.ray.io "{RECEIPT.new}" not found in namespace "default"',
        ),
    ],
)
def test_a_cluster_that_no_receipt_names_is_not_found(command: str, message: str) -> None:
    assert message in _type(f"logs {command}").stderr
