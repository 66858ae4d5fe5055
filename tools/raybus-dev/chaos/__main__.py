"""Every part of raybus and of its servers fails in turn, and no change may be lost.

    make chaos [MINUTES=30] [SEED=1]

Faults and user requests are drawn from a seed. A checker judges everything that was observed. The
API server, etcd, controller-manager, scheduler and NATS (with users and TLS) are real. The five
services run as processes; the reconcilers are scaled from one replica to four, then to two. Pods
(kwok), Ray heads and the gateway are simulated. The exit code is 1 if a rule was broken; then the
seed and the last events before the violation are printed.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from bench import pod_network
from bench.report import keep_stdout_clean
from chaos import report
from chaos.report import Report
from chaos.run import ChaosOptions, ChaosRun
from common import errors
from localcluster.errors import ClusterError

OUTPUT: Final = Path(__file__).parents[3] / "build" / "chaos"


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="raybus-dev chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="duration of faults and changes (30)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of faults and changes (1)")
    parser.add_argument(
        "--replicas", type=int, default=4, help="maximum replicas of each reconciler (4)"
    )
    parser.add_argument(
        "--jobs", type=int, default=60, help="RayJobs of the run, besides scheduled ones (60)"
    )
    parser.add_argument(
        "--again",
        type=int,
        default=0,
        metavar="N",
        help="repeat a run up to N times while it breaks only time limits (0)",
    )
    parser.add_argument(
        "--untimed",
        action="store_true",
        help="report broken time limits without failing, for a machine with other work",
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the report"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=OUTPUT, help="folder of the logs (build/chaos)"
    )
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error(f"--minutes {options.minutes:g}: must be greater than 0")
    if options.jobs < 0:
        parser.error(f"--jobs {options.jobs}: must not be negative")
    if not 1 <= options.replicas <= 16:
        parser.error(f"--replicas {options.replicas}: must be from 1 to 16")
    return options


def emit(line: str) -> None:
    """Print a line of progress to standard error."""
    sys.stderr.write(f"chaos: {line}\n")
    sys.stderr.flush()


def _run(options: argparse.Namespace) -> Report:
    folder: Path = options.out / f"seed-{options.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    emit(f"logs: {folder}")
    with tempfile.TemporaryDirectory(prefix="raybus-chaos-") as work:
        wanted = ChaosOptions(
            seed=options.seed,
            minutes=options.minutes,
            replicas=options.replicas,
            jobs=options.jobs,
            logs=folder,
            work=Path(work),
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(_until_reported(wanted))
        if outcome.violations:
            for log in (Path(work) / "cp").glob("audit*.log"):
                shutil.copy(log, folder)
    report.write(outcome, folder)
    return outcome


def _run_in_time(options: argparse.Namespace) -> Report:
    """Run, and repeat the run up to `--again` times while it breaks only time limits."""
    outcome = _run(options)
    for _ in range(options.again):
        if not outcome.is_only_late:
            break
        report.show(outcome, Console(width=150, stderr=True))
        emit("RERUN: only time limits were broken")
        outcome = _run(options)
    return outcome


async def _until_reported(wanted: ChaosOptions) -> Report:
    """Run and return the report.

    SIGTERM ends the run like Ctrl-C, so that no process is left behind.
    """
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await ChaosRun(wanted, emit).report()


def main() -> int:
    """Run and report. Return 1 if a rule was broken, 130 if the run was interrupted, else 0."""
    options = parse_arguments(sys.argv[1:])
    pod_network.enter("chaos")
    keep_stdout_clean()
    try:
        outcome = _run_in_time(options)
    except (asyncio.CancelledError, KeyboardInterrupt):
        emit("interrupted")
        return 130
    except (ClusterError, errors.RaybusError) as problem:
        raise SystemExit(f"chaos: {problem}") from None
    if options.o == "json":
        sys.stdout.write(report.encode(outcome) + "\n")
    else:
        report.show(outcome, Console(width=150))
    is_broken = bool(outcome.violations) and not (options.untimed and outcome.is_only_late)
    return 1 if is_broken else 0


if __name__ == "__main__":
    sys.exit(main())
