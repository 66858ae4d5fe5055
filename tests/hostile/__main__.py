"""Hostile tenants beside a victim: a real kube-apiserver with its audit log, a real nats-server, the four services with their own rights.

    make hostile [N=2000] [SEED=1]

A tenant may write Ray objects, Services and routes in namespaces of his own. Exit code 1 when a rule is broken: a service restarts, its event
loop is blocked for longer than 250 ms, it takes more memory than its limit, the victim's reactions become twice as slow as its calm ones,
anything is read or written outside the namespace of its object, or an object has neither a condition nor an Event with its outcome.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

from bench import pod_network, report
from hostile import run, verdict
from hostile.run import Wanted

OUTPUT: Final = Path(__file__).parents[2] / "build" / "hostile"


def asked(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-n", type=int, default=2000, help="attacks (2000)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (1)")
    parser.add_argument(
        "--samples",
        type=int,
        default=verdict.ENOUGH,
        help=f"reactions of the victim to each kind of change, in calm and in the control ({verdict.ENOUGH})",
    )
    parser.add_argument(
        "--untimed",
        action="store_true",
        help="judge neither lag nor reactions: other work takes the processors",
    )
    parser.add_argument(
        "--rate", type=float, default=1.0, help="attacks that begin in a second (1)"
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the figures"
    )
    found = parser.parse_args(arguments)
    if found.n < 1 or found.rate <= 0 or found.samples < 1:
        parser.error("-n, --rate and --samples must be greater than 0")
    return found


def emit(line: str) -> None:
    """Print a line of progress."""
    sys.stderr.write(f"hostile: {line}\n")
    sys.stderr.flush()


def main() -> int:
    """Run and report; 1 when a rule is broken."""
    options = asked(sys.argv[1:])
    pod_network.enter("hostile")
    report.keep_stdout_clean()
    folder = OUTPUT / f"seed-{options.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    emit(f"logs: {folder}")
    wanted = Wanted(
        attacks=options.n,
        seed=options.seed,
        samples=options.samples,
        is_timed=not options.untimed,
        rate=options.rate,
        logs=folder,
    )
    found = report.measured(run.measure(wanted, emit))
    report.show(found, lambda: verdict.table(found), form=options.o, width=140)
    for rule in found.broken:
        emit(f"broken: {rule}")
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
