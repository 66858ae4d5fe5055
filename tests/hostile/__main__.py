"""Hostile tenants beside a victim: a real kube-apiserver with its audit log, a real nats-server, the four services with their own rights.

    make hostile [N=2000] [SEED=1]

A tenant may write Ray objects, Services and routes in namespaces of his own. Exit code 1 when a rule is broken: a service restarts, its event
loop is blocked for longer than 250 ms, it takes more memory than its limit, the victim's reactions become twice as slow as its calm ones,
anything is read or written outside the namespace of its object, or an object says neither by condition nor by Event what became of it.
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
        prog="python -m hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=2000, help="attacks (2000)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (1)")
    parser.add_argument(
        "--calm", type=float, default=30.0, metavar="SECONDS", help="how long the victim is alone first (30)"
    )
    parser.add_argument(
        "--untimed", action="store_true", help="judge neither lag nor reactions: other work takes the processors"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="K", help="attacks of each of four tenants at a time (1)"
    )
    parser.add_argument("-o", choices=["text", "json"], default="text", help="how to print the figures")
    found = parser.parse_args(arguments)
    if found.n < 1 or found.at_once < 1 or found.calm <= 0:
        parser.error("-n, --at-once and --calm must be greater than 0")
    return found


def say(line: str) -> None:
    """Tell the user what goes on."""
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
    say(f"logs: {folder}")
    wanted = Wanted(
        attacks=options.n,
        seed=options.seed,
        calm=options.calm,
        is_timed=not options.untimed,
        at_once=options.at_once,
        logs=folder,
    )
    found = report.measured(run.measure(wanted, say))
    report.show(found, lambda: verdict.table(found), form=options.o, width=140)
    for rule in found.broken:
        say(f"broken: {rule}")
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
