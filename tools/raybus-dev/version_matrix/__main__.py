"""Runs raybus on other versions of Kubernetes, the Gateway API, NATS, Python and Ray.

    make version-matrix [ROW=kubernetes-1.31]

For each row, a user creates a RayCluster, a RayJob and a RayService, and upgrades the RayService in
steps; then `raybus doctor` checks the installation. A row of NATS also runs the contract tests of
the bus, on a process and, with `--containers`, on a container of this version; the row of Python
runs the unit and scenario tests. If raybus must refuse a version, the row passes only if the
refusal has the expected sentence. The figures of rows that pass are written into the table of the
documentation; the exit code is 1 if a row does not pass.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from localcluster import binaries
from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.settings import KUBERNETES, LocalSettings
from support.servers import docker
from version_matrix import environments, rows, table
from version_matrix.rows import PINNED_PYTHON, RowOutcome, VersionRow

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "testing.md"
LOGS: Final = ROOT / "build" / "version-matrix"
ROW_SECONDS: Final = 2400.0
CONTRACTS: Final = ("tests/contract/common/bus", "tests/contract/nats_admin")
FAST_TESTS: Final = ("-n", "2", "-m", "not long", "tests/unit", "tests/scenario")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="raybus-dev version-matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in rows.ROWS]
    parser.add_argument(
        "--row", action="append", default=[], choices=names, help="a row; by default all"
    )
    parser.add_argument(
        "--containers", action="store_true", help="also run the contract tests on containers"
    )
    return parser.parse_args(arguments)


async def prepare(row: VersionRow, *, containers: bool) -> Path:
    """Build and install what a row needs, and return the path of its Python interpreter."""
    progress = Progress.to_stderr()
    names = [*binaries.CONTROL_PLANE, "kube-scheduler", "kubectl", *binaries.SIMULATED_NODES]
    names += [binaries.GATEWAY_CRDS, *binaries.map_kubernetes_programs(row.kubernetes).values()]
    if row.gateway_api != VersionRow(name="").gateway_api:
        names.append(f"gateway-crds-{row.gateway_api}")
    if row.nats:
        names.append(f"nats-server-{row.nats}")
    settings = LocalSettings.from_environment()
    if row.kubernetes != KUBERNETES:
        names = [name for name in names if name not in binaries.CONTROL_PLANE or name == "etcd"]
    await binaries.obtain(list(dict.fromkeys(names)), settings, progress)
    if containers and row.nats:
        await asyncio.to_thread(docker.install, progress)
    await environments.ensure_ray(row, progress)
    return await environments.ensure_python(row, ROOT, progress)


def run_row(row: VersionRow, python: Path) -> RowOutcome:
    """Run the steps of a user (`journey`) in a separate process and network."""
    logs = LOGS / row.name
    command = [str(python), "-m", "version_matrix.journey", "--row", row.name, "--logs", str(logs)]
    done = subprocess.run(
        command,
        env=_environment({"NATS_VERSION": row.nats}),
        stdout=subprocess.PIPE,
        check=False,
        timeout=ROW_SECONDS,
    )
    if done.returncode != 0:
        raise ClusterError(f"ended with code {done.returncode}; the logs are in {logs}")
    return msgspec.json.decode(done.stdout, type=RowOutcome)


def run_tests(python: Path, *arguments: str, variables: Mapping[str, str]) -> None:
    """Run tests of the repository on another Python or another server."""
    command = [str(python), "-m", "pytest", "-q", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=_environment(variables), check=False)
    if done.returncode != 0:
        changed = " ".join(f"{name}={value}" for name, value in variables.items())
        raise ClusterError(f"tests fail: {changed} {' '.join(command)}")


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process with `variables` added, except empty ones."""
    return os.environ | {name: value for name, value in variables.items() if value}


def measure(row: VersionRow, *, containers: bool) -> RowOutcome:
    """Carry out a row. Raises `ClusterError` if a step or a test of the row fails."""
    python = asyncio.run(prepare(row, containers=containers))
    outcome = run_row(row, python)
    if row.nats and not row.refusal:
        for variable in ("NATS_VERSION", *(("NATS_CONTAINER",) if containers else ())):
            run_tests(python, *CONTRACTS, variables={variable: row.nats})
    if row.python != PINNED_PYTHON:
        run_tests(python, *FAST_TESTS, variables={})
    return outcome


def main() -> None:
    """Carry out the rows, and write the table."""
    options = parse_arguments(sys.argv[1:])
    failed: list[str] = []
    for row in rows.find(options.row):
        sys.stderr.write(f"{row.name}: {row.difference or 'the versions of all other tests'}\n")
        try:
            outcome = measure(row, containers=options.containers)
        except ClusterError as problem:
            failed.append(row.name)
            sys.stderr.write(f"{row.name}: error: {problem}\n")
            continue
        PAGE.write_text(table.update(PAGE.read_text(), [outcome]))
    if failed:
        raise SystemExit(f"not as they should be: {', '.join(failed)}")


if __name__ == "__main__":
    main()
