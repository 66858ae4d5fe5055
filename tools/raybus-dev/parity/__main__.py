"""Compare raybus with KubeRay's own code on random cases.

    make parity [N=5000] [FIRST=0] [SEED=1] [ONLY=NUMBER] [KUBERAY=…/ray-operator] [JSON=1]

The run fails if a difference is not declared in `differences.yaml`. Each kind of difference is
printed as soon as it is found, and listed once more at the end. The most frequent kinds are
listed with a case that is reduced to a minimum. `--only NUMBER` runs one case of a seed; `--first
NUMBER` continues a run at this case. `--record N` writes the cases that `make check` uses.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from localcluster.errors import ClusterError
from localcluster.progress import Progress as BuildProgress
from parity import building, judging, options, recorded, theirs
from parity.judging import CaseJudgement, Judge

CHUNK: Final = 25
"""Number of cases that a process compares in one batch."""
REPORT_INTERVAL: Final = 10.0
"""Seconds between two lines of progress if the output is no terminal."""
SHRUNK: Final = 5
"""Number of kinds of differences for which a case is reduced, each in up to a minute."""


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="raybus-dev parity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", type=int, default=5000, help="cases (5000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases (1)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one case of the seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--kuberay",
        type=Path,
        metavar="DIR",
        help="folder ray-operator of a checkout, instead of the pinned version",
    )
    parser.add_argument("--record", type=int, metavar="N", help="write N cases for make check")
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the report"
    )
    options = parser.parse_args(arguments)
    for name in ("n", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"-{name}: must be greater than 0")
    if not 0 <= options.first < options.n:
        parser.error("--first: must be at least 0 and less than -n")
    return options


def run(given: argparse.Namespace, program: Path, source: Path) -> list[CaseJudgement]:
    """Compare all cases in parallel.

    Shows a progress bar, or lines if the output is no terminal. `program` is the compiled program
    with KubeRay's code.
    """
    numbers = range(given.first, given.n) if given.only is None else [given.only]
    kinds = set[str]()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    results, count = list[CaseJudgement](), 0
    pool = ProcessPoolExecutor(
        min(given.jobs, len(numbers)), initializer=judging.begin, initargs=(program, source)
    )
    console = Console(stderr=True)
    reported_at = time.monotonic()
    with Progress(*columns, console=console) as shown, pool:
        task = shown.add_task("cases", total=len(numbers))
        chunks = [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]
        for some in pool.map(partial(judging.work, given.seed), chunks):
            results += some
            count += sum(bool(judgement.found) for judgement in some)
            for judgement in some:
                new = {difference.signature for difference in judgement.found} - kinds
                kinds |= new
                for kind in sorted(new):
                    console.print(f"case {judgement.number}: {kind}", markup=False)
            shown.update(
                task, advance=len(some), description=f"cases ({count} differ)" if count else "cases"
            )
            if not console.is_terminal and time.monotonic() - reported_at > REPORT_INTERVAL:
                reported_at = time.monotonic()
                console.print(f"  … {len(results)} of {len(numbers)} cases, {count} differ")
    return results


def report(
    results: list[CaseJudgement],
    given: argparse.Namespace,
    program: Path,
    source: Path,
    seconds: float,
) -> int:
    """Print the differences by kind.

    Return 1 if there are undeclared ones, else 0. `seconds` is the duration of the run.
    """
    kinds: dict[str, list[CaseJudgement]] = {}
    for result in results:
        for signature in {one.signature for one in result.found}:
            kinds.setdefault(signature, []).append(result)
    topics = sum((Counter(result.declared) for result in results), Counter[str]())
    if given.o == "json":
        body = {
            "cases": len(results),
            "seconds": round(seconds, 1),
            "undeclared": {
                kind: [judgement.number for judgement in some] for kind, some in kinds.items()
            },
            "declared": dict(topics.most_common()),
        }
        print(msgspec.json.format(msgspec.json.encode(body)).decode())
        return 1 if kinds else 0
    with theirs.started(program) as kuberay:
        judge = Judge(kuberay, source)
        for number, (kind, some) in enumerate(
            sorted(kinds.items(), key=lambda item: -len(item[1]))
        ):
            print(f"\n{kind}: in {len(some)} cases, such as ONLY={some[0].number}")
            if number < SHRUNK or given.only is not None:
                _show(judge, kind, some[0], given.seed)
    print(
        f"\n{len(results)} cases, {seconds:.0f} s: {sum(topics.values())} declared differences, "
        f"{len(kinds)} kinds of undeclared ones"
    )
    for topic, count in topics.most_common():
        print(f"  {count:7} {topic}")
    return 1 if kinds else 0


def _show(judge: Judge, kind: str, judgement: CaseJudgement, seed: int) -> None:
    case = judge.shrunk(judge.draw(seed, judgement.number), kind)
    for difference in judge.judge({0: case})[0].found:
        print(f"  {difference}")
    print(f"  {msgspec.json.encode(case).decode()}")


def main() -> int:
    """Parse the command line and run.

    Return the exit code: 1 for differences, 2 without a program.
    """
    given = parse_arguments(sys.argv[1:])
    try:
        program, source = building.program(given.kuberay, BuildProgress.to_stderr())
    except ClusterError as problem:
        print(problem, file=sys.stderr)
        return 2
    if unknown := options.missing(options.read(source)):
        print(f"KubeRay has options that migrating/switches.py lacks: {', '.join(unknown)}")
        return 1
    if given.record is not None:
        with theirs.started(program) as kuberay:
            path = recorded.write(
                Judge(kuberay, source),
                version=kuberay.version,
                release=kuberay.release,
                seed=given.seed,
                most=given.record,
            )
        print(f"wrote {path} ({path.stat().st_size:,} bytes)")
        print(f"wrote {recorded.write_options(options.read(source))}")
        return 0
    began = time.monotonic()
    results = run(given, program, source)
    return report(results, given, program, source, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
