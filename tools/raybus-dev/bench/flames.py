"""Which functions take the processor time of a scale-up? A flame graph of each busy process.

    make bench-flames [N=300]

NATS and the services run as `raybus up` starts them while N RayClusters of four pods are created.
py-spy samples the busy services; perf, if installed, samples NATS. The pictures go to
build/bench/flames-*.svg.
"""

import argparse
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Final

import msgspec

from bench import background, chart, report
from bench.chart import Stack
from bench.report import OUTPUT, emit
from bench.rig import fresh, namespace_of
from support.servers import raybus_up

PYTHON: Final = ("watcher", "cluster-reconciler")
NATS: Final = "nats"
HERTZ: Final = 200
CODE_LOCATION: Final = re.compile(r" \((?:.*/)?([^/:]+/[^/:]+):\d+\)$")
"""Location at the end of a py-spy frame: folder, file and line."""

Profile = Mapping[Stack, float]


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The number of clusters created, and the number of samples of each process."""

    clusters: int
    samples: dict[str, float]


async def sample(count: int, folder: Path) -> None:
    """Sample the processes while `count` clusters are created.

    Each process gets a file in `folder`.
    """
    async with fresh(clusters=count) as rig:
        with raybus_up.started(rig.work / "up", "--kubeconfig", str(rig.kubeconfig)) as running:
            announced = await running.ready(within=120)
            async with background.watching(rig, background.CLUSTERS, background.is_ready) as ready:
                with ExitStack() as stack:
                    for name in PYTHON:
                        stack.enter_context(_run_py_spy(announced.one(name), folder / name))
                    if shutil.which("perf"):
                        stack.enter_context(_run_perf(announced.one(NATS), folder / NATS))
                    else:
                        emit("perf is not installed here: NATS is left out")
                    emit(f"{count} clusters come up")
                    await background.create_many(rig, count, namespace=namespace_of)
                    await ready.count(count)


def read(folder: Path) -> dict[str, Profile]:
    """Return the profile of each process from the files that `sample` wrote."""
    profiles: dict[str, Profile] = {
        name: parse_py_spy((folder / name).read_text()) for name in PYTHON
    }
    if (file := folder / NATS).exists():
        script = subprocess.run(
            ["perf", "script", "-i", file, "-F", "ip,sym"], capture_output=True, check=True
        )
        profiles[NATS] = parse_perf(script.stdout.decode(errors="replace"))
    return profiles


@contextmanager
def _run_py_spy(pid: int, to: Path) -> Generator[None]:
    program, limit = (
        str(Path(sys.executable).with_name("py-spy")),
        str(int(background.LIMIT_SECONDS)),
    )
    # Only sample threads that hold the interpreter lock: on busy processors, waiting threads count
    # as active, too.
    options = ["--gil", "-r", str(HERTZ), "-d", limit, "-f", "raw", "-o", str(to)]
    with sampling([program, "record", "-p", str(pid), *options]):
        yield


@contextmanager
def _run_perf(pid: int, to: Path) -> Generator[None]:
    with sampling(["perf", "record", "-q", "-g", "-F", str(HERTZ), "-p", str(pid), "-o", str(to)]):
        yield


@contextmanager
def sampling(command: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """Run a sampler during the `with` block; interrupt it at the end, so that it writes its file.

    If the sampler ends early (for example because it may not trace another process), exit with the
    first line of its error output.
    """
    with TemporaryFile() as printed:
        sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=printed)
        try:
            yield sampler
            if sampler.poll() is not None:
                printed.seek(0)
                reason = printed.read().decode(errors="replace").strip().partition("\n")[0]
                raise SystemExit(f"bench: {Path(command[0]).name} took no samples: {reason}")
            sampler.send_signal(signal.SIGINT)
            sampler.wait(timeout=60)
        finally:
            sampler.kill()
            sampler.wait()


def parse_py_spy(raw: str) -> Profile:
    """Parse py-spy's output.

    Each line is a stack, outermost frame first, and its number of samples.
    """
    stacks = Counter[Stack]()
    for line in raw.splitlines():
        frames, _, samples = line.rpartition(" ")
        stacks[tuple(CODE_LOCATION.sub(r" \1", frame) for frame in frames.split(";"))] += int(
            samples
        )
    return stacks


def parse_perf(script: str) -> Profile:
    """Parse perf's output. Each paragraph is a stack, one frame a line, innermost frame first."""
    stacks = Counter[Stack]()
    for paragraph in script.split("\n\n"):
        frames = [
            line.split(maxsplit=1)[1].strip()
            for line in paragraph.splitlines()
            if len(line.split()) > 1
        ]
        if frames:
            stacks[tuple(reversed([_shorten_go_name(frame) for frame in frames]))] += 1
    return stacks


def _shorten_go_name(frame: str) -> str:
    """Return the name of a Go function without its module path."""
    return frame.rpartition("/")[2]


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return background.parse_arguments(parser, arguments, count=300)


def main() -> int:
    """Sample, draw and write the flame graphs."""
    options = parse_arguments()
    with TemporaryDirectory() as folder:
        report.measured(sample(options.n, Path(folder)))
        profiles = read(Path(folder))
    pictures = {
        name: chart.flames(profile, title=f"{name}: {options.n} RayClusters")
        for name, profile in profiles.items()
    }
    sampled = Sampled(
        clusters=options.n,
        samples={name: sum(profile.values()) for name, profile in profiles.items()},
    )
    report.write(sampled, OUTPUT / "flames", others=pictures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
