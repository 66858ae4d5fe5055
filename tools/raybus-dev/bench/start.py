"""What does a service cost before it does any work? Measures processor time, memory and packages.

A start imports the service and reads a kubeconfig; packages that no image has are hidden. All five
processes run at the same time, so PSS divides their shared pages among them.

    python -m bench.start                       with this Python
    python -m bench.start --images              with the images of this checkout
    python -m bench.start --images ARCHIVE...   with the images in these archives

The services of images run as root in one folder with the files of all of them, and with the
environment of an image.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench import chart, programs, report
from bench.chart import Bar
from bench.goals import FigureGoal, judged
from bench.report import OUTPUT
from localcluster.images import archive, builder
from localcluster.progress import Progress

SERVICES: Final = (
    "watcher",
    "cluster_reconciler",
    "service_reconciler",
    "traffic_manager",
    "job_reconciler",
)
ROUNDS: Final = 5
MAX_PACKAGES: Final = 9
"""Maximum packages that have a part of their own in the picture."""
MAX_CPU: Final = 0.3
"""Goal: maximum processor seconds of a service's start, as the median of all rounds."""
KUBECONFIG: Final = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters: [{name: c, cluster: {server: 'https://localhost:1'}}]
users: [{name: c, user: {token: t}}]
"""
STARTED: Final = """
import sys
sys.modules["rich"] = None  # an image has no rich, which structlog would import
if %(traced)d:
    import gc, tracemalloc
    from importlib.machinery import SourceFileLoader
    held, within, load = {}, [], SourceFileLoader.exec_module
    def taken():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    def exec_module(loader, module):
        before = taken()
        within.append(0)
        try:
            load(loader, module)
        finally:
            total = taken() - before
            own = total - within.pop()
            if within:
                within[-1] += total
            package = module.__name__.partition(".")[0]
            package = "Python" if package in sys.stdlib_module_names else package
            held[package] = held.get(package, 0) + own
    SourceFileLoader.exec_module = exec_module
    tracemalloc.start(1)
else:
    held = {}
import %(service)s.wiring
import asyncio, json, os
from pathlib import Path
from common.kube.client import KubeClient
async def connect():
    kube = await KubeClient.connect(kubeconfig=Path(%(kubeconfig)r), user_agent="bench")
    await kube.close()
asyncio.run(connect())
times = os.times()
found = {"cpu": times.user + times.system, "modules": len(sys.modules), "held": held}
print(json.dumps(found), flush=True)
sys.stdin.read()
"""


class StartedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a service's process after its start."""

    cpu: float
    modules: int
    held: dict[str, int]
    """Bytes that the modules of each package allocate while loading; empty unless traced."""
    pss_mib: float = 0.0


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python interpreter that can import raybus's services."""

    command: tuple[str, ...]
    environment: dict[str, str] | None = None
    """Environment variables of its processes; None for those of this process."""
    root: Path = Path("/")
    """The root folder of its processes."""


HERE: Final = Interpreter(command=(sys.executable,))


@contextmanager
def unpacked(archives: Sequence[Path]) -> Generator[Interpreter]:
    """Unpack images during the `with` block, and yield the Python in them."""
    with tempfile.TemporaryDirectory(prefix="raybus-images-") as folder:
        root = Path(folder)
        environment = archive.unpack(archives, root)
        yield Interpreter(
            command=("chroot", folder, "/opt/raybus/bin/python"), environment=environment, root=root
        )


def start(interpreter: Interpreter = HERE, *, traced: bool = False) -> dict[str, StartedProcess]:
    """Start all services, and return measurements that are made while all are running.

    At the end, the services are ended. `traced` also measures the memory that modules allocate.
    """
    with tempfile.TemporaryDirectory(dir=interpreter.root / "tmp") as folder:
        kubeconfig = Path(folder) / "config"
        kubeconfig.write_text(KUBECONFIG)
        inside = f"/{kubeconfig.relative_to(interpreter.root)}"
        processes = {
            service: subprocess.Popen(
                [
                    *interpreter.command,
                    "-c",
                    STARTED % {"service": service, "kubeconfig": inside, "traced": traced},
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=interpreter.environment,
            )
            for service in SERVICES
        }
        lines = {service: _line(process) for service, process in processes.items()}
        found = {
            service: msgspec.structs.replace(
                msgspec.json.decode(line, type=StartedProcess),
                pss_mib=programs.pss_mib([processes[service].pid]),
            )
            for service, line in lines.items()
        }
        for process in processes.values():
            process.communicate()
    return found


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that the modules of each package allocate, by service."""

    services: dict[str, Counter[str]]


def picture(held: Mapping[str, Counter[str]]) -> str:
    """Draw, as SVG, the memory of each service, divided by package."""
    largest = [
        package for package, _ in sum(held.values(), Counter[str]()).most_common(MAX_PACKAGES)
    ]
    rows = [
        Bar(
            service.replace("_", "-"),
            {package: packages[package] / 2**20 for package in largest}
            | {
                "others": sum(size for package, size in packages.items() if package not in largest)
                / 2**20
            },
        )
        for service, packages in held.items()
    ]
    return chart.bars(rows, title="memory of the modules of a service", unit="MiB")


def goals(rounds: Sequence[Mapping[str, StartedProcess]]) -> list[FigureGoal]:
    """Return the goal for the start of each service."""
    found = {service: median(each[service].cpu for each in rounds) for service in SERVICES}
    return [
        FigureGoal(
            figure=f"CPU of the start of {service}",
            value=f"{cpu:.2f} s",
            goal=f"{MAX_CPU:g} s",
            is_reached=cpu <= MAX_CPU,
        )
        for service, cpu in found.items()
    ]


def main() -> int:
    """Measure and print the tables. Return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(prog="bench start", description="Measure the services' start.")
    parser.add_argument("--images", nargs="*", type=Path, metavar="ARCHIVE", help="use images")
    archives: list[Path] | None = parser.parse_args().images
    if archives is None:
        return _measure(HERE)
    if not archives:
        names = [service.replace("_", "-") for service in SERVICES]
        images = builder.ensure(names, progress=Progress.to_stderr())
        archives = [images[name].path for name in names]
    with unpacked(archives) as interpreter:
        return _measure(interpreter)


def _measure(interpreter: Interpreter) -> int:
    rounds = [start(interpreter) for _ in range(ROUNDS)]
    lines = [
        f"| service | CPU of its start (goal: {MAX_CPU:g} s) | modules | PSS |",
        "|---|---|---|---|",
    ]
    for service in SERVICES:
        each = [found[service] for found in rounds]
        cpu, pss = median(one.cpu for one in each), median(one.pss_mib for one in each)
        lines.append(
            f"| {service.replace('_', '-')} | {cpu:.2f} s | {each[0].modules} | {pss:.1f} MiB |"
        )
    total = median(sum(one.pss_mib for one in found.values()) for found in rounds)
    lines += [
        f"| all | | | {total:.1f} MiB |",
        "",
        f"| package | {' | '.join(SERVICES)} |",
        "|---|---|---|---|---|",
    ]
    traced = {
        service: Counter(found.held) for service, found in start(interpreter, traced=True).items()
    }
    for package, _ in sum(traced.values(), Counter[str]()).most_common(16):
        lines.append(
            f"| {package} | "
            f"{' | '.join(f'{traced[each][package] / 2**20:.1f}' for each in SERVICES)} |"
        )
    lines.append(
        f"| all | {' | '.join(f'{traced[each].total() / 2**20:.1f}' for each in SERVICES)} |"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    report.write(Held(services=traced), OUTPUT / "start", picture=picture(traced))
    return judged("start", goals(rounds))


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


if __name__ == "__main__":
    sys.exit(main())
