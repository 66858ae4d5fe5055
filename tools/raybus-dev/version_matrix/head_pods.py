"""Runs the head pods of RayClusters with a real Ray: the command and environment of each pod.

kwok assigns the address of a pod and reports it as ready. This module runs the Ray container as a
process under that address, in network, mount and PID namespaces of its own, and runs the pod's
readiness probe. If the version of Ray does not know an option of the command, or a path of the
probe, the pod fails here as on a node.
"""

import asyncio
import itertools
import os
import re
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from common import labels
from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.resources import POD
from localcluster.errors import ClusterError
from raybus_cli.child_processes import bind_to_parent

POLL_SECONDS: Final = 0.3
PROBE_SECONDS: Final = 1.0
START_SECONDS: Final = 300.0
"""Timeout of the start of a head, on a machine with two busy processors."""
APPLICATIONS: Final = Path(__file__).parents[3] / "tests" / "e2e" / "versions"
"""Folder of the Serve applications, which an image of a user would have."""
GATEWAY: Final = "169.254.1.1"
"""Address of this machine in the network of each pod."""
PATIENCE: Final = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "240",
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "240",
    "RAY_raylet_start_wait_time_s": "120",
}
"""Ray's timeouts for the start of processes, which may take minutes on a busy machine."""
_WAIT_FOR_NETWORK: Final = """
mkdir -p /tmp/ray
mount -t tmpfs tmpfs /tmp/ray
mount -t tmpfs -o size=2g tmpfs /dev/shm
read -r _
exec "$@"
"""
_LABEL: Final = re.compile(r"metadata\.(?P<field>labels|annotations)\['(?P<key>[^']+)'\]")


class HeadPod:
    """A running head pod."""

    def __init__(self, pod: Body, number: int, ray: Path, work: Path) -> None:
        self.address = str(pod["status"]["podIP"])
        self.cluster = str(pod["metadata"]["labels"][labels.CLUSTER])
        self.log = work / f"{pod['metadata']['name']}.log"
        self._container: Json = pod["spec"]["containers"][0]
        self._link = f"pod{number}"
        self._environment = {
            "PATH": f"{ray / 'bin'}:{os.environ['PATH']}",
            "HOME": str(work),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(APPLICATIONS),
            "PYTHONUNBUFFERED": "1",
            **PATIENCE,
            **read_environment(pod, self._container),
        }
        self._process = self._start()
        self.is_ready = False

    def _start(self) -> "subprocess.Popen[bytes]":
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        command = [*self._container["command"], *self._container["args"]]
        script = ["sh", "-ec", _WAIT_FOR_NETWORK, "sh", *command]
        with self.log.open("wb") as out:
            process = subprocess.Popen(
                bind_to_parent(["unshare", *namespaces, "--", *script]),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=self._environment,
            )
        try:
            self._connect(process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def _connect(self, process: "subprocess.Popen[bytes]") -> None:
        """Connect the network of the pod to the network of this process, then let the pod start."""
        _wait_for_namespace(process.pid)
        link, pid = self._link, str(process.pid)
        _run(
            "ip", "link", "add", "name", link, "type", "veth", "peer", "name", "eth0", "netns", pid
        )
        _run("ip", "address", "add", f"{GATEWAY}/32", "dev", link)
        _run("ip", "link", "set", link, "up")
        _run("ip", "route", "replace", f"{self.address}/32", "dev", link)
        inside = ["nsenter", f"--target={pid}", "--net", "ip"]
        for arguments in (
            ["link", "set", "lo", "up"],
            ["address", "add", f"{self.address}/32", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["route", "add", GATEWAY, "dev", "eth0"],
            ["route", "add", "default", "via", GATEWAY],
        ):
            _run(*inside, *arguments)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()

    async def ask_probe(self) -> bool:
        """Return whether the readiness probe of the pod succeeds."""
        if (code := self._process.poll()) is not None:
            text = self.log.read_text(errors="replace")[-1500:]
            raise ClusterError(f"the head of {self.cluster} ended with code {code}: {text}")
        probe: Json = self._container["readinessProbe"]
        if (request := probe.get("httpGet")) is not None:
            url = f"http://{self.address}:{request['port']}{request['path']}"
            return await _answers(url)
        return await asyncio.to_thread(self._execute, probe["exec"]["command"])

    def _execute(self, command: list[str]) -> bool:
        inside = ["nsenter", f"--target={self._process.pid}", "--net", "--", *command]
        done = subprocess.run(inside, env=self._environment, capture_output=True, check=False)
        return done.returncode == 0

    def end(self) -> None:
        """Kill all processes of the pod."""
        self._process.kill()
        self._process.wait()


class HeadPods:
    """The head pods of a namespace."""

    def __init__(self, kube: KubeClient, namespace: str, ray: Path, work: Path) -> None:
        self._kube = kube
        self._namespace = namespace
        self._ray = ray
        self._work = work
        self._numbers = itertools.count()
        self._pods: dict[str, HeadPod] = {}
        """The running pods by UID."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["HeadPods"]:
        """Run the head pods during the `with` block."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._run())
            try:
                yield self
            finally:
                task.cancel()
                for pod in self._pods.values():
                    await asyncio.to_thread(pod.end)

    def find(self, cluster: str) -> HeadPod | None:
        """Return the head pod of a cluster if its probe succeeds."""
        ready = (pod for pod in self._pods.values() if pod.cluster == cluster and pod.is_ready)
        return next(ready, None)

    async def _run(self) -> None:
        selector = f"{labels.NODE_TYPE}={labels.HEAD}"
        while True:
            body = await self._kube.list(POD, self._namespace, label_selector=selector)
            present = {
                str(pod["metadata"]["uid"]): pod
                for pod in msgspec.json.decode(body)["items"]
                if pod["metadata"].get("deletionTimestamp") is None
            }
            for uid in self._pods.keys() - present.keys():
                await asyncio.to_thread(self._pods.pop(uid).end)
            for uid, pod in present.items():
                if uid not in self._pods and pod["status"].get("podIP"):
                    number = next(self._numbers)
                    self._pods[uid] = await asyncio.to_thread(
                        HeadPod, pod, number, self._ray, self._work
                    )
            for pod in list(self._pods.values()):
                pod.is_ready = pod.is_ready or await pod.ask_probe()
            await asyncio.sleep(POLL_SECONDS)


def read_environment(pod: Body, container: Json) -> dict[str, str]:
    """Return the environment of a container. If a name occurs twice, its last value counts."""
    return {
        variable["name"]: variable["value"]
        if "value" in variable
        else _read_field(
            pod, variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        )
        for variable in container.get("env", [])
    }


def _read_field(pod: Mapping[str, Any], path: str) -> str:
    if match := _LABEL.fullmatch(path):
        return str(pod["metadata"].get(match["field"], {}).get(match["key"], ""))
    part, _, field = path.partition(".")
    value: Any = pod.get(part, {}).get(field, "")
    return str(value)


def _wait_for_namespace(pid: int) -> None:
    """Wait until a process is in another network namespace than this one."""
    own = Path("/proc/self/ns/net").readlink()
    for _ in range(500):
        if Path(f"/proc/{pid}/ns/net").readlink() != own:
            return
        subprocess.run(["sleep", "0.01"], check=True)
    raise ClusterError("the namespaces of a head pod were not made within 5 s")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")


async def _answers(url: str) -> bool:
    async with httpx.AsyncClient(trust_env=False, timeout=PROBE_SECONDS) as client:
        try:
            return (await client.get(url)).is_success
        except httpx.HTTPError:
            return False
