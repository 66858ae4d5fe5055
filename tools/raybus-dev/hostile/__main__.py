"""Hostile tenants attack raybus while a victim's workload is measured.

    make hostile [N=2000] [SEED=1]

The API server with its audit log and NATS are real; the services run with the rights of a
deployment. A tenant may write Ray objects, Services and routes in one namespace. The exit code is 1
if a rule is broken: a service restarts; its event loop is blocked for more than 250 ms; it exceeds
its memory limit; the victim's reactions take more than twice as long as without attacks; a service
reads or writes outside the namespace of its object; or an object has neither a condition nor an
Event that explains its outcome.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

from bench import pod_network, report
from hostile import run, verdict
from hostile.run import HostileOptions

OUTPUT: Final = Path(__file__).parents[3] / "build" / "hostile"


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="raybus-dev hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", type=int, default=2000, help="attacks (2000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the attacks (1)")
    parser.add_argument(
        "--samples",
        type=int,
        default=verdict.MIN_REACTIONS,
        help=f"reactions to each kind of change in the first two phases ({verdict.MIN_REACTIONS})",
    )
    parser.add_argument(
        "--untimed",
        action="store_true",
        help="judge neither lag nor reactions, for a machine with other work",
    )
    parser.add_argument("--rate", type=float, default=1.0, help="attacks per second (1)")
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the figures"
    )
    options = parser.parse_args(arguments)
    if options.n < 1 or options.rate <= 0 or options.samples < 1:
        parser.error("-n, --rate and --samples must be greater than 0")
    return options


def emit(line: str) -> None:
    """Print a line of progress to standard error."""
    sys.stderr.write(f"hostile: {line}\n")
    sys.stderr.flush()


def main() -> int:
    """Run and report. Return 1 if a rule is broken, else 0."""
    options = parse_arguments(sys.argv[1:])
    pod_network.enter("hostile")
    report.keep_stdout_clean()
    folder = OUTPUT / f"seed-{options.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    emit(f"logs: {folder}")
    wanted = HostileOptions(
        attacks=options.n,
        seed=options.seed,
        samples=options.samples,
        is_timed=not options.untimed,
        rate=options.rate,
        logs=folder,
    )
    figures = report.measured(run.measure(wanted, emit))
    report.show(figures, lambda: verdict.table(figures), form=options.o, width=140)
    for rule in figures.violations:
        emit(f"broken: {rule}")
    return 1 if figures.violations else 0


if __name__ == "__main__":
    sys.exit(main())
