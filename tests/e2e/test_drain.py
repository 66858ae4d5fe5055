"""`kubectl drain` under load.

Workers leave one at a time, each after Ray has drained it; a head leaves when nothing needs it any
more. The cluster has one Node, so a drain is limited to pods by a label, and the Node is uncordoned
as soon as it is cordoned: the new pods have nowhere else to run. Cordon, evictions, budgets,
preStop hooks and grace periods are those of any drain.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.api.core import Pod
from common.api.opaque import Json
from localcluster.demo.cluster_state import NAMESPACE, SERVICE, DemoState
from localcluster.demo.tally import LoadAnswer
from support.waiting import eventually_true

from .conftest import Rig
from .greeter import Greeter, Options, expect_no_failure, serving_in_steps, settle, show
from .ray_cluster import spread
from .session import Session

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.ondemand]

GRACE = 75
"""Grace period in seconds: requests of 20 s, 30 s for a proxy to drain, and a reserve."""
LONGEST = '"graceful_shutdown_timeout_s":30'
"""Time limit of replicas for requests: 20 s, and requests that a proxy sends before it knows of the
drain."""
ASKED = {"raybus.io/disruption-budget": "true", "raybus.io/drain-workers": "true"}
TWO_WORKERS = Options(workers=2, annotations=ASKED)
NODES = """\
import json
from ray.util.state import list_nodes
print(json.dumps([[node.node_ip, node.state, node.state_message or ""] for node in list_nodes(limit=100)]))
"""


class Drained(Greeter):
    """A service whose workers have enough time to drain."""

    def manifest(self, version: int) -> Json:
        """Return the manifest with the times."""
        body = super().manifest(version)
        spec = body["spec"]
        spec["serveConfigV2"] = spec["serveConfigV2"].replace(
            '"name":"Greeter"', f'"name":"Greeter",{LONGEST}'
        )
        for group in spec["rayClusterConfig"]["workerGroupSpecs"]:
            group["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE
        return body


class Lasting(Drained):
    """A service whose GCS outlives its head, on a volume."""

    def manifest(self, version: int) -> Json:
        """Return the manifest with Ray's embedded store."""
        body = super().manifest(version)
        config = body["spec"]["rayClusterConfig"]
        config["gcsFaultToleranceOptions"] = {"backend": "rocksdb"}
        config["headGroupSpec"]["template"]["spec"]["securityContext"] = {"fsGroup": 100}
        return body


def of_type(state: DemoState, node_type: str) -> list[Pod]:
    """Return the heads or the workers of the active cluster."""
    cluster = {"ray.io/cluster": state.active, "ray.io/node-type": node_type}
    return [pod for pod in state.pods if cluster.items() <= pod.metadata.labels.items()]


def all_ready(state: DemoState, *, workers: int, gone: frozenset[str] = frozenset()) -> bool:
    """Return whether the head and so many workers are ready, and none of them is one of `gone`."""
    pods = [*of_type(state, "head"), *of_type(state, "worker")]
    ready = all(
        pod.is_running_and_ready and pod.metadata.deletion_timestamp is None for pod in pods
    )
    return ready and len(pods) == workers + 1 and not gone & {pod.metadata.name for pod in pods}


class Nodes:
    """The one Node, as `kubectl` drains it."""

    def __init__(self, rig: Rig) -> None:
        self._kubectl = rig.kubectl

    async def drain(self, selector: str, *options: str) -> str:
        """Evict the pods that a selector names; return what `kubectl drain` printed."""
        name = (
            await self._kubectl.run("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
        ).strip()
        what = (
            "--pod-selector",
            selector,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            *options,
        )
        return await self._kubectl.run("drain", name, *what)

    async def uncordon(self) -> None:
        """Let pods be placed again once the drain has cordoned the Node."""

        async def is_cordoned() -> bool:
            return (
                await self._kubectl.run(
                    "get", "nodes", "-o", "jsonpath={.items[0].spec.unschedulable}"
                )
                == "true"
            )

        await eventually_true(is_cordoned, within=60, every=0.2, what="the Node being cordoned")
        name = (
            await self._kubectl.run("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
        ).strip()
        await self._kubectl.run("uncordon", name)

    @asynccontextmanager
    async def draining(self, selector: str, within: int) -> AsyncGenerator[asyncio.Task[str]]:
        """Drain the Node beside a block, which lets pods be placed again first; wait for its end."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.drain(selector, f"--timeout={within}s"))
            await self.uncordon()
            yield task

    async def may_be_evicted(self, pod: Pod) -> bool:
        """Return whether the API server would evict a pod now."""
        name, eviction = pod.metadata.name, {"apiVersion": "policy/v1", "kind": "Eviction"}
        body = {**eviction, "metadata": {"name": name}, "deleteOptions": {"dryRun": ["All"]}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        with suppress(errors.RaybusError):
            await self._kubectl.run(
                "create", "--raw", path, "-f", "-", stdin=msgspec.json.encode(body).decode()
            )
            return True
        return False


async def ray_nodes(rig: Rig, state: DemoState) -> list[tuple[str, str, str]]:
    """Return address and state of each node that Ray knows, and why it ended; a later pod may have the address of an earlier one."""
    (head,) = of_type(state, "head")
    command = (
        *("exec", "-n", NAMESPACE, head.metadata.name, "-c", "ray-head", "--", "python", "-c"),
        NODES,
    )
    return msgspec.json.decode(
        (await rig.kubectl.run(*command)).splitlines()[-1], type=list[tuple[str, str, str]]
    )


async def annotate_cluster(rig: Rig, cluster: str, value: str) -> None:
    """Turn the feature on or off for a running cluster."""
    annotation = f"raybus.io/disruption-budget={value}"
    await rig.kubectl.run(
        "annotate", "raycluster", cluster, "-n", NAMESPACE, annotation, "--overwrite"
    )


def table(what: str, answers: list[LoadAnswer], began: float) -> None:
    """Print the results of the requests."""
    loop = asyncio.get_running_loop()
    failed = [each for each in answers if each.failed]
    show(
        f"{what}: {len(answers)} requests in {loop.time() - began:.0f} s, {len(failed)} failed",
        *failed[:10],
    )


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def protected(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with budgets, and workers that drain before they end."""
    async with serving_in_steps(rig, TWO_WORKERS, kind=Drained) as greeter:
        yield greeter


async def is_refused(nodes: Nodes, pod: Pod) -> bool:
    return not await nodes.may_be_evicted(pod)


async def test_a_drain_takes_one_worker_at_a_time_after_ray_has_drained_it(
    rig: Rig, protected: Greeter
) -> None:
    async with asyncio.timeout(500):
        before = await protected.wait(
            "two workers that serve", lambda state: all_ready(state, workers=2)
        )
        workers = {pod.metadata.name: pod.status.pod_ip for pod in of_type(before, "worker")}
        selector = f"ray.io/cluster={before.active},ray.io/node-type=worker"
        async with protected.under_load() as answers:
            await settle(answers)
            began = asyncio.get_running_loop().time()
            async with Nodes(rig).draining(selector, within=400) as drain:
                fewest = 2
                while not drain.done():
                    ready = [
                        pod
                        for pod in of_type(await protected.state(), "worker")
                        if pod.is_running_and_ready
                    ]
                    fewest = min(fewest, len(ready))
                    await asyncio.sleep(0.5)
            show(drain.result())
            gone = frozenset(workers)
            after = await protected.wait(
                "two other workers", lambda state: all_ready(state, workers=2, gone=gone)
            )
            await settle(answers)
            table("two workers drained", answers, began)
    expect_no_failure(protected, answers, at_least=1000)
    assert (fewest, after.active) == (1, before.active)
    known = await ray_nodes(rig, after)
    show(*known)
    drained = {
        address for address, state, why in known if state == "DEAD" and "the pod is evicted" in why
    }
    assert drained >= set(workers.values())


async def test_the_annotation_opts_a_running_cluster_out_and_in(
    rig: Rig, protected: Greeter
) -> None:
    nodes, state = Nodes(rig), await protected.state()
    (head,) = of_type(state, "head")
    await eventually_true(
        lambda: is_refused(nodes, head), within=60, what="the head being protected"
    )
    await annotate_cluster(rig, state.active, "false")
    await eventually_true(lambda: nodes.may_be_evicted(head), within=60, what="the opt-out")
    await annotate_cluster(rig, state.active, "true")
    await eventually_true(lambda: is_refused(nodes, head), within=60, what="the opt-in")


async def test_a_protected_head_goes_when_a_restart_has_moved_its_service(
    rig: Rig, protected: Greeter, tmp_path: Path
) -> None:
    terminal = Session(tmp_path, rig.kubectl.kubeconfig, rig.kubectl.binary.parent)
    async with asyncio.timeout(500), protected.under_load() as answers:
        await settle(answers)
        began, old = asyncio.get_running_loop().time(), (await protected.state()).active
        async with Nodes(rig).draining(
            f"ray.io/cluster={old},ray.io/node-type=head", within=400
        ) as drain:
            await settle(answers)
            assert not drain.done(), "the budget refuses it"
            await terminal.pipe(f"raybus restart {SERVICE} -n {NAMESPACE}")
            await protected.wait_for_promotion(old)
        show(drain.result())
        await settle(answers)
        table("node of a head drained", answers, began)
    expect_no_failure(protected, answers, at_least=1000)


async def test_what_an_evicted_head_costs_with_fault_tolerance(rig: Rig) -> None:
    async with serving_in_steps(rig, TWO_WORKERS, kind=Lasting) as greeter, asyncio.timeout(400):
        before = await greeter.wait(
            "two workers that serve", lambda state: all_ready(state, workers=2)
        )
        (head,) = of_type(before, "head")
        selector = f"ray.io/cluster={before.active},ray.io/node-type=head"
        async with greeter.under_load() as answers:
            await settle(answers)
            began = asyncio.get_running_loop().time()
            async with Nodes(rig).draining(selector, within=60) as drain:
                pass
            show(drain.result())
            gone = frozenset({head.metadata.name})
            after = await greeter.wait(
                "another head", lambda state: all_ready(state, workers=2, gone=gone)
            )
            await settle(answers, more=600)
            table("head with fault tolerance evicted", answers, began)
        assert after.active == before.active
        workers = [of_type(state, "worker") for state in (before, after)]
        assert spread(workers[0]) == spread(workers[1]), "the workers go on"
        expect_no_failure(greeter, answers, at_least=1000)
