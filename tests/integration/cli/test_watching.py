"""`-w` on a real API server: no request while nothing changes, a line at once for a change, and the right that is missing."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from common.kube import rest_config
from common.kube.client import PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from integration.cli.conftest import CliNamespace
from integration.cli.test_refusals import guest
from raybus_cli.printing import Output
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import NamedTarget
from raybus_cli.show import watching
from raybus_cli.show.sources import ObjectSource, TableSource, TreeSource
from support.builders import snapshots
from support.builders.snapshots import BLUE, a_cluster, a_config, a_pod
from support.counting_client import CountingClient
from support.waiting import eventually

pytestmark = [pytest.mark.integration]
IDLE_SECONDS = 2.5
AT_ONCE_SECONDS = 0.7
"""A poll of each second would miss it in a third of the runs."""


def _table(scope: CliNamespace) -> ObjectSource:
    return TableSource(kinds.KINDS, scope.namespace, "", wide=False)


def _everything(_town: CliNamespace) -> ObjectSource:
    return TableSource(kinds.KINDS, None, "", wide=False)


def _tree(scope: CliNamespace) -> ObjectSource:
    return TreeSource(scope.namespace, [NamedTarget(kinds.SERVICE, "demo")], wide=False)


def _cluster_tree(scope: CliNamespace) -> ObjectSource:
    return TreeSource(scope.namespace, [NamedTarget(kinds.CLUSTER, BLUE)], wide=False)


@pytest.mark.parametrize(
    ("source", "first"), [(_table, 2), (_everything, 2), (_tree, 1), (_cluster_tree, 1)]
)
async def test_it_costs_nothing_while_idle_and_shows_a_change_at_once(
    source: Callable[[CliNamespace], ObjectSource],
    first: int,
    scope: CliNamespace,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await scope.settle(
        snapshots.a_ready_service(), a_cluster(BLUE, a_config()), pods=(a_pod(BLUE, "head"),)
    )
    printed: list[str] = []

    def lines() -> list[str]:
        printed.extend(
            each for each in capsys.readouterr().out.splitlines() if scope.namespace in each
        )
        return printed

    configuration = await rest_config.load(kubeconfig=scope.kubeconfig)
    kube = CountingClient(configuration, user_agent="raybus-test")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watching.follow(kube, source(scope), Output.JSON))
        await eventually(lambda: len(lines()) == first, what="the first lines")
        await asyncio.sleep(IDLE_SECONDS)
        assert lines()[first:] == []
        asked = len(kube.requests)
        await asyncio.sleep(IDLE_SECONDS)
        assert kube.requests[asked:] == []
        patch = PatchRequest(
            body={"status": {"reason": "changed", "desiredWorkerReplicas": 7}}, subresource="status"
        )
        await scope.kube.patch(RAY_CLUSTER, scope.namespace, BLUE, patch)
        patch = PatchRequest(body={"status": {"numServeEndpoints": 9}}, subresource="status")
        await scope.kube.patch(RAY_SERVICE, scope.namespace, "demo", patch)
        await eventually(lambda: len(lines()) > first, within=AT_ONCE_SECONDS, what="the change")
        task.cancel()
    await kube.close()
    assert {json.loads(each)["namespace"] for each in printed} == {scope.namespace}


@pytest.mark.parametrize(
    "command", [("list",), ("get", "rayservices"), ("get", "rayservice", "demo")]
)
async def test_the_right_that_is_missing_is_named(
    command: tuple[str, ...], scope: CliNamespace, tmp_path: Path
) -> None:
    await scope.settle(snapshots.a_ready_service(), a_cluster(BLUE, a_config()))
    reader = await guest(scope, tmp_path / "guest", "rayservices", "rayclusters")
    done = scope.raybus(*command, "-w", kubeconfig=reader)
    assert done.code == 1
    assert 'cannot watch resource "ray' in done.err
    assert done.err.endswith("see what you may do with 'kubectl auth can-i --list'\n")
