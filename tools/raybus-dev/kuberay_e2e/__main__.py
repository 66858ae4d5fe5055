"""Run KubeRay's own test suites with raybus in place of KubeRay.

    make kuberay-e2e KUBERAY=DIR [SUITE=e2erayjob] [RUN=REGEX]

The suite controllers/ray runs on an API server without pods; the other suites run one after the
other on a local node with real Ray. `suites.yaml` lists each change of KubeRay's code, and the
tests that cannot pass (exemptions). The run fails if any other test does not pass.

The table of a suite is printed and written to build/kuberay-e2e/SUITE.md, and results of a suite
on the node to docs/kuberay-suites.md. SUITE.json has the events of `go test`. controllers/ray
writes controllers-ray.md, controllers-ray.json (a JSON report of Ginkgo), controllers.log (the
output of `go test`) and the folder logs (the logs of raybus).
"""

import argparse
import asyncio
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from kuberay_e2e import building, declarations, node, page, results
from kuberay_e2e.building import SuiteSource
from kuberay_e2e.declarations import Declarations
from kuberay_e2e.results import Outcome, SuiteRun
from localcluster.demo import demo_cluster
from localcluster.driver import ClusterRecord
from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from raybus_cli.child_processes import bind_to_parent
from support import node as support_node

CONTROLLERS: Final = "controllers/ray"
"""KubeRay's suite of its controllers. It needs an API server, but no node and no Ray."""
WITH_GATEWAY: Final = "e2eincrementalupgrade"
WITH_CERT_MANAGER: Final = "e2e"
ON_NODE: Final = (
    "e2erayjob",
    "e2erayjobsubmitter",
    "e2eraycronjob",
    "e2erayservice",
    WITH_CERT_MANAGER,
    WITH_GATEWAY,
    "e2eautoscaler",
)
SUITES: Final = (CONTROLLERS, *ON_NODE)
FOCUS: Final = "RayJob"
"""Pattern for the Ginkgo specs to run in KubeRay's suite of its controllers."""
OUTPUT: Final = Path(__file__).parents[3] / "build" / "kuberay-e2e"
PAGE: Final = Path(__file__).parents[3] / "docs" / "kuberay-suites.md"
IMAGES: Final = ("kuberay-suites", "redis")
"""The images that the suites need in addition to those that a user needs."""
TIMEOUT: Final = "150m"
"""Timeout of `go test` for a suite. KubeRay's tests have shorter timeouts for each step."""


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="raybus-dev kuberay-e2e",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--kuberay", type=Path, required=True, metavar="DIR", help="checkout of KubeRay"
    )
    parser.add_argument("--suite", action="append", choices=SUITES, help="default: all")
    parser.add_argument(
        "--run", default="", metavar="REGEX", help="tests to run, as -run of go test"
    )
    parser.add_argument("--skip", default="", metavar="REGEX", help="tests to leave out")
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="a running local cluster that has all images; default: a new one, removed at the end",
    )
    return parser.parse_args(arguments)


def run_on_node(
    suite: str,
    source: SuiteSource,
    record: ClusterRecord,
    variables: dict[str, str],
    given: Namespace,
) -> SuiteRun:
    """Run one suite on a node that has raybus. `variables` are added to the environment."""
    environment = source.environment | {
        **variables,
        "KUBECONFIG": str(record.kubeconfig),
        # Some tests run kubectl.
        "PATH": f"{record.binaries['kubectl'].parent}{os.pathsep}{os.environ['PATH']}",
    }
    argv = [str(source.go), "test", "-json", "-vet=off", "-count=1", "-timeout", TIMEOUT]
    argv += ["-run", given.run, "-skip", given.skip, f"./test/{suite}"]
    lines: list[bytes] = []
    with (OUTPUT / f"{suite}.json").open("wb") as written:
        process = subprocess.Popen(argv, cwd=source.folder, env=environment, stdout=subprocess.PIPE)
        try:
            for line in process.stdout or ():
                written.write(line)
                lines.append(line)
                _show(line)
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    return SuiteRun(suite=suite, code=code, results=results.parse(lines))


def run_controllers(source: SuiteSource, assets: Path, given: Namespace) -> SuiteRun:
    """Run the RayJob specs of `controllers/ray`, on an API server without pods.

    `assets` is the folder with the programs of the control plane.
    """
    json_report = OUTPUT / "controllers-ray.json"
    json_report.unlink(missing_ok=True)
    checkout = LocalSettings.from_environment().checkout
    up = [sys.executable, "-m", "raybus_cli.main", "up", "--log-dir", str(OUTPUT / "logs")]
    environment = source.environment | {
        "KUBEBUILDER_ASSETS": str(assets),
        "RAYBUS_CRDS": str(checkout / "deploy" / "crds"),
        "RAYBUS_UP": msgspec.json.encode(bind_to_parent(up)).decode(),
    }
    argv = [str(source.go), "test", "-vet=off", "-count=1", "-timeout", TIMEOUT, f"./{CONTROLLERS}"]
    argv += ["-run", "TestAPIs", "-args", "-ginkgo.no-color", f"-ginkgo.json-report={json_report}"]
    argv += [f"-ginkgo.focus={given.run or FOCUS}", f"-ginkgo.skip={given.skip}"]
    with (OUTPUT / "controllers.log").open("wb") as log:
        finished = subprocess.run(
            argv, cwd=source.folder, env=environment, stdout=log, stderr=log, check=False
        )
    found = results.parse_report(json_report.read_bytes()) if json_report.exists() else []
    return SuiteRun(suite=CONTROLLERS, code=finished.returncode, results=found)


def report(found: SuiteRun, declared: Declarations) -> list[str]:
    """Print the results of a suite, and write their table to a file in `OUTPUT`.

    Return a line for each result that `suites.yaml` does not explain.
    """
    table = results.format_table(found, declared)
    (OUTPUT / f"{found.suite.replace('/', '-')}.md").write_text(table)
    print(table)
    for result in found.results:
        if result.outcome is Outcome.FAIL:
            print(f"{result.name}:\n{result.output}\n")
    return results.find_problems(found, declared)


def _show(line: bytes) -> None:
    """Print a line to standard error if an event of `go test` begins or ends a test."""
    event = results.parse_event(line)
    if event is not None and event.test and event.action in {"run", *Outcome}:
        seconds = f" ({event.elapsed:.0f} s)" if event.elapsed else ""
        print(f"  {event.action:4} {event.test}{seconds}", file=sys.stderr)


@contextmanager
def _start_node(
    given: Namespace, submitter: Path, suites: Collection[str]
) -> Generator[ClusterRecord]:
    """Start a node with all that the suites need, or use the one that `--cluster` names; yield it.

    A started node is removed after the `with` block. `submitter` is an image to load into the node.
    """
    with ExitStack() as stack:
        if given.cluster is not None:
            record = node.find(given.cluster)
            demo_cluster.load_images([submitter], given.cluster)
        else:
            has_gateway = WITH_GATEWAY in suites
            record = stack.enter_context(
                support_node.running(
                    "suites", more_images=IMAGES, archives=[submitter], gateway=has_gateway
                )
            )
        if WITH_CERT_MANAGER in suites:
            stack.enter_context(node.run_cert_manager(record, OUTPUT / "cert-manager.log"))
        yield record


def run(given: Namespace, declared: Declarations) -> list[str]:
    """Run the suites. Return a line for each result that `suites.yaml` does not explain."""
    suites = given.suite or SUITES
    on_node = [suite for suite in suites if suite in ON_NODE]
    variables = {variable.name: variable.value for variable in declared.environment}
    progress = Progress.to_stderr()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    source = asyncio.run(building.prepare(given.kuberay, declared, progress))
    packages = [f"./{suite}" if suite == CONTROLLERS else f"./test/{suite}" for suite in suites]
    asyncio.run(building.compile_tests(source, packages, progress))
    problems: list[str] = []
    if CONTROLLERS in suites:
        assets = asyncio.run(building.obtain_assets(progress))
        problems += report(run_controllers(source, assets, given), declared)
    if on_node:
        submitter = asyncio.run(building.build_submitter(source, progress))
        with _start_node(given, submitter, on_node) as record:
            asyncio.run(node.install(record))
            for suite in on_node:
                found = run_on_node(suite, source, record, variables, given)
                is_whole = not given.run and not given.skip
                PAGE.write_text(page.record(PAGE.read_text(), found, declared, is_whole=is_whole))
                problems += report(found, declared)
    return problems


def main(arguments: list[str]) -> int:
    """Run the suites that the command line selects.

    Return the exit code: 1 if a result is unexplained, 2 if the suites cannot run.
    """
    given = parse_arguments(arguments)
    try:
        problems = run(given, declarations.load())
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
