"""Everything fails in turn, and nothing is lost: faults and users drawn from a seed, a checker that judges all that was seen.

    make chaos [MINUTES=30] [SEED=1]

A real API server, etcd, controller-manager, scheduler and NATS with users and TLS; the four services as processes, the reconcilers
scaled from one to four to two; simulated pods (kwok), fake Ray heads, and a fake gateway where the Gateway API's definitions are.
Exit code 1 when a rule was broken; then the seed and the last events before it are printed.
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
from chaos.run import Run, Wanted
from common import errors
from localcluster.errors import ClusterError

OUTPUT: Final = Path(__file__).parents[2] / "build" / "chaos"


def asked(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="how long faults and changes go on (30)"
    )
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (1)")
    parser.add_argument(
        "--replicas", type=int, default=4, help="the most replicas of each reconciler (4)"
    )
    parser.add_argument(
        "--again",
        type=int,
        default=0,
        metavar="N",
        help="repeat a run that broke nothing but limits in seconds (0)",
    )
    parser.add_argument(
        "--untimed",
        action="store_true",
        help="report limits in seconds without judging them: other work takes the processors",
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the report"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=OUTPUT, help="where logs go (build/chaos)"
    )
    found = parser.parse_args(arguments)
    if found.minutes <= 0:
        parser.error(f"--minutes {found.minutes:g}: must be greater than 0")
    if not 1 <= found.replicas <= 16:
        parser.error(f"--replicas {found.replicas}: must be from 1 to 16")
    return found


def emit(line: str) -> None:
    """Print a line of progress."""
    sys.stderr.write(f"chaos: {line}\n")
    sys.stderr.flush()


def _run(options: argparse.Namespace) -> Report:
    folder: Path = options.out / f"seed-{options.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    emit(f"logs: {folder}")
    with tempfile.TemporaryDirectory(prefix="raybus-chaos-") as work:
        wanted = Wanted(
            seed=options.seed,
            minutes=options.minutes,
            replicas=options.replicas,
            logs=folder,
            work=Path(work),
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_until_reported(wanted))
        if found.violations:
            for log in (Path(work) / "cp").glob("audit*.log"):
                shutil.copy(log, folder)
    report.write(found, folder)
    return found


def _run_in_time(options: argparse.Namespace) -> Report:
    """Run, and repeat that as often as allowed while nothing but limits in seconds are broken."""
    found = _run(options)
    for _ in range(options.again):
        if not found.is_only_late:
            break
        report.show(found, Console(width=150, stderr=True))
        emit("RERUN: nothing but limits in seconds were broken")
        found = _run(options)
    return found


async def _until_reported(wanted: Wanted) -> Report:
    """Let SIGTERM end the run as Ctrl-C does, so that nothing is left behind."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await Run(wanted, emit).report()


def main() -> int:
    """Run and report; 1 when a rule was broken."""
    options = asked(sys.argv[1:])
    pod_network.enter("chaos")
    keep_stdout_clean()
    try:
        found = _run_in_time(options)
    except (asyncio.CancelledError, KeyboardInterrupt):
        emit("ended before its time")
        return 130
    except (ClusterError, errors.RaybusError) as problem:
        raise SystemExit(f"chaos: {problem}") from None
    if options.o == "json":
        sys.stdout.write(report.encode(found) + "\n")
    else:
        report.show(found, Console(width=150))
    is_broken = bool(found.violations) and not (options.untimed and found.is_only_late)
    return 1 if is_broken else 0


if __name__ == "__main__":
    sys.exit(main())
