"""`raybus-dev`: one command for all tools that only this repository needs.

The command runs the module of the tool with the remaining arguments, and imports no other tool.
`raybus-dev TOOL --help` shows the tool's options. Exit code 2: there is no such tool.
"""

import runpy
import sys
from typing import Final

import msgspec


class Tool(msgspec.Struct, frozen=True):
    """A tool: a module that runs as a program, and one line for the list of tools."""

    module: str
    help: str
    before: tuple[str, ...] = ()
    """Arguments that are passed to the module before those of the command line."""


TOOLS: Final = {
    "bench clusters": Tool("bench.clusters", "RayClusters from creation to ready"),
    "bench flames": Tool("bench.flames", "Flame graphs of the services and NATS"),
    "bench gate-power": Tool("bench.gate_power", "Smallest regression that a gate finds"),
    "bench goals": Tool("bench.goals", "Table of all goals, from the last runs"),
    "bench hops": Tool("bench.hops", "Functions between a watch event and its write"),
    "bench jobs": Tool("bench.jobs", "RayJobs to completion, and running ones at rest"),
    "bench large": Tool("bench.large", "5,000 RayClusters, and each failover among them"),
    "bench latency": Tool("bench.latency", "From a pod's change to its reconcile"),
    "bench metrics-cost": Tool("bench.metrics_cost", "CPU of the optional metrics"),
    "bench scale-out": Tool("bench.scale_out", "Several replicas beside one"),
    "bench services": Tool("bench.services", "RayServices at rest"),
    "bench start": Tool("bench.start", "CPU and memory of the start of each service"),
    "bench tutorial": Tool("bench.tutorial", "Part 1 of the tutorial without any cache"),
    "bench upgrades": Tool("bench.upgrades", "Upgrades on real Ray, from apply to promotion"),
    "chaos": Tool("chaos", "Fail every part in turn on real servers, and judge"),
    "cluster": Tool("raybus_cli.main", "Run a real Kubernetes on this machine", ("cluster",)),
    "demo": Tool("raybus_cli.main", "A real upgrade under load", ("demo",)),
    "hostile": Tool("hostile", "Attacks of tenants beside a victim, on real servers"),
    "images": Tool("raybus_cli.main", "Build the container images", ("images",)),
    "kuberay-e2e": Tool("kuberay_e2e", "KubeRay's own suites with raybus in its place"),
    "mutants": Tool("mutants", "Change the deciding code; a test must fail"),
    "parity": Tool("parity", "Compare decisions with KubeRay's own code"),
    "prepare": Tool("support.preparation", "Build and install what a suite of tests needs"),
    "quiet": Tool("integration.monitoring.quiet", "No alert may fire during normal upgrades"),
    "rehearsal": Tool("integration.migration.rehearsal", "Take over from KubeRay, and back"),
    "job-rehearsal": Tool(
        "integration.migration.job_rehearsal", "Take over running RayJobs from KubeRay, and back"
    ),
    "release": Tool("raybus_dev.release", "Images, chart and wheel as one archive"),
    "simulate": Tool("scenario.simulation", "Upgrades by seeds, with every law checked"),
    "version-matrix": Tool("version_matrix", "Other versions of Kubernetes, NATS, Python and Ray"),
    "wheel": Tool("raybus_dev.wheel", "The command line as one wheel, in a folder"),
}


def main() -> None:
    """Run the tool that the command line names. Exits with 2 if there is no such tool."""
    given = sys.argv[1:]
    if not given or given[0] in {"-h", "--help"}:
        print(_help())
        return
    for length in (2, 1):
        name = " ".join(given[:length])
        if (tool := TOOLS.get(name)) is not None and len(given) >= length:
            # The command line of raybus adds its own commands (`before`) to the program's name.
            program = "raybus-dev" if tool.before else f"raybus-dev {name}"
            sys.argv = [program, *tool.before, *given[length:]]
            runpy.run_module(tool.module, run_name="__main__", alter_sys=False)
            return
    print(
        f"error: raybus-dev has no tool {given[0]!r}; 'raybus-dev --help' lists them",
        file=sys.stderr,
    )
    raise SystemExit(2)


def _help() -> str:
    width = max(len(name) for name in TOOLS)
    lines = [f"  {name:<{width}}  {tool.help}" for name, tool in TOOLS.items()]
    return "\n".join(["Usage: raybus-dev TOOL [OPTION]…", "", "Tools:", *lines])


if __name__ == "__main__":
    main()
