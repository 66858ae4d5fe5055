"""Ctrl-C ends a command with 130, whatever else goes wrong because of it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
import yaml

from common import errors
from common.api.opaque import Json
from common.kube.client import KubeClient
from raybus_cli import session
from raybus_cli.kubeconfig import KubeAccess


def _where(folder: Path) -> KubeAccess:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    document: Json = {
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
    }
    (folder / "config").write_text(yaml.safe_dump({**document, "current-context": "c"}))
    return KubeAccess(kubeconfig=folder / "config", context="c")


def test_what_fails_while_it_is_interrupted_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(_: KubeClient) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise errors.Unavailable("the connection is being closed") from None

    with pytest.raises(SystemExit) as ended:
        session.run(_where(tmp_path), work)
    assert (ended.value.code, capsys.readouterr().err) == (session.INTERRUPTED, "")


def test_an_error_in_a_group_of_tasks_is_no_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise errors.Rejected("no")

    async def work(_: KubeClient) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    with pytest.raises(SystemExit) as ended:
        session.run(_where(tmp_path), work)
    assert (ended.value.code, capsys.readouterr().err) == (1, "error: no\n")
