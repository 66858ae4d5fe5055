"""A real Prometheus, and its tool for rules: Debian's package, unpacked into the cache and never installed as a service."""

import asyncio
import math
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import yaml

from localcluster.images import debian
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from raybus_cli import child_processes
from raybus_cli.child_processes import bind_to_parent
from support.servers.programs import REMEDY
from support.waiting import eventually_true

PACKAGE: Final = "prometheus"
PROGRAMS: Final = ("prometheus", "promtool")


class Series(msgspec.Struct, frozen=True):
    """One series of an answer: a value, or values over a period."""

    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "NaN")
    values: list[tuple[float, str]] = []

    @property
    def is_drawn(self) -> bool:
        """Return whether the series has a value that is a number, so that Grafana draws it."""
        return any(math.isfinite(float(number)) for _, number in self.values)


class Intervals(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals in which a server scrapes and evaluates, in the format of Prometheus."""

    scrape: str = "1s"
    evaluation: str = "1s"


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a rule in a server."""

    name: str
    health: str
    """Health of the rule; `ok` after it was evaluated without an error."""
    last_error: str = ""


class _Group(msgspec.Struct, frozen=True):
    rules: list[Rule] = []


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result: list[Series] = []
    alerts: list[dict[str, Any]] = []
    active_targets: list[dict[str, Any]] = []
    groups: list[_Group] = []


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    data: _Data = _Data()
    error: str = ""


class Prometheus:
    """A running Prometheus server."""

    def __init__(self, client: httpx.AsyncClient, port: int) -> None:
        self.port = port
        self._client = client

    async def query(self, expression: str) -> list[Series]:
        """Return the current value of an expression; raise AssertionError if it is refused."""
        return (await self._get("/api/v1/query", query=expression)).result

    async def drawn(self, expression: str, *, since: float, until: float) -> int:
        """Return the number of lines that Grafana would draw between two moments (Unix time)."""
        query = {"query": expression, "start": str(since), "end": str(until), "step": "1"}
        return sum(
            each.is_drawn for each in (await self._get("/api/v1/query_range", **query)).result
        )

    async def texts(self) -> set[str]:
        """Return the descriptions of the firing alerts."""
        found = (await self._get("/api/v1/alerts")).alerts
        return {each["annotations"]["summary"] for each in found if each["state"] == "firing"}

    async def firing(self) -> set[str]:
        """Return the names of the firing alerts."""
        return {name for name, state in await self.standing() if state == "firing"}

    async def standing(self) -> set[tuple[str, str]]:
        """Return the names of the alerts that are pending or firing, each with its state."""
        found = (await self._get("/api/v1/alerts")).alerts
        return {(each["labels"]["alertname"], each["state"]) for each in found}

    async def rules(self) -> list[Rule]:
        """Return the state of each rule."""
        return [rule for group in (await self._get("/api/v1/rules")).groups for rule in group.rules]

    async def scraped(self) -> dict[str, str]:
        """Return the health of each target by its URL."""
        return {
            each["scrapeUrl"]: each["health"]
            for each in (await self._get("/api/v1/targets")).active_targets
        }

    async def is_ready(self) -> bool:
        """Return whether the server answers queries."""
        try:
            return (await self._client.get("/-/ready")).is_success
        except httpx.TransportError:
            return False

    async def _get(self, path: str, **query: str) -> _Data:
        answer = msgspec.json.decode(
            (await self._client.get(path, params=query)).content, type=_Answer
        )
        assert answer.status == "success", f"{query}: {answer.error}"
        return answer.data


def install(progress: Progress) -> None:
    """Install the programs into the cache; raise `ClusterError` with the remedy if Debian does not
    provide them.
    """
    if all((_folder() / each).is_file() for each in PROGRAMS):
        return
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        work.chmod(0o755)  # apt-get downloads as a user of its own
        debian.unpack(PACKAGE, work, progress)
        _folder().mkdir(parents=True, exist_ok=True)
        for each in PROGRAMS:
            passing = _folder() / f".{each}.{os.getpid()}"
            shutil.copy(work / "usr" / "bin" / each, passing)
            passing.replace(_folder() / each)


def program(name: str) -> Path:
    """Return the path of a program; raise AssertionError if `make prepare` has not fetched it."""
    found = _folder() / name
    assert found.is_file(), f"{name} is not there: {REMEDY}"
    return found


def _folder() -> Path:
    return LocalSettings.from_environment().cache_root / PACKAGE


def _configured(
    work: Path, *, jobs: list[dict[str, Any]], rules: Path, intervals: Intervals
) -> Path:
    work.mkdir(parents=True, exist_ok=True)
    configured = {
        "scrape_interval": intervals.scrape,
        "scrape_timeout": intervals.scrape,
        "evaluation_interval": intervals.evaluation,
    }
    config = {"global": configured, "rule_files": [str(rules)], "scrape_configs": jobs}
    path = work / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def started(
    work: Path, *, jobs: list[dict[str, Any]], rules: Path, intervals: Intervals | None = None
) -> AsyncGenerator[Prometheus]:
    """Run a server for the duration of a block; by default it scrapes and evaluates every second."""
    (port,) = child_processes.find_free_ports(1)
    command = [
        str(program("prometheus")),
        f"--config.file={_configured(work, jobs=jobs, rules=rules, intervals=intervals or Intervals())}",
        f"--storage.tsdb.path={work / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (work / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *bind_to_parent(command), stdout=log, stderr=log
        )
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False
        ) as client:
            server = Prometheus(client, port)
            await eventually_true(
                server.is_ready, every=0.1, what=f"Prometheus; see {work / 'log'}"
            )
            yield server
    finally:
        process.terminate()
        await process.wait()
