"""`raybus-dev mutants`: change the code that makes decisions, and check that a test fails.

    --table             try only the mutants written by hand (`table`), each with its own test
    --only PART         change only files whose path contains PART
    --seed N --most M   try M generated mutants, drawn with this seed (M = 0: all of them)

A mutant survives if no test fails; the surviving mutants are printed. The working tree is not
changed: the tests import a changed copy of the package.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from mutants import operators
from mutants.table import CLUSTER, COMMON, JOB, SERVICE, TABLE, TRAFFIC

ROOT: Final = Path(__file__).parents[3]
TEST_TIMEOUT: Final = 300.0
"""Seconds after which the tests of one mutant are ended.

A mutant that makes the tests hang counts as killed.
"""
FAILED: Final = re.compile(r"^FAILED (\S+::\w+(?:\[.*?\](?= - |$))?)", re.MULTILINE)
"""Pattern for a failed test in pytest's summary."""
PAGE: Final = "libs/dashboard/src/raybus_dashboard/incluster"
STEPS: Final = ("unit/traffic_manager", "scenario/upgrade")
PROMOTION: Final = ("unit/service_reconciler", "scenario/service_reconciler", "scenario/upgrade")
DECIDING: Final[dict[str, tuple[str, ...]]] = {
    f"{TRAFFIC}/migration": STEPS,
    f"{TRAFFIC}/status": STEPS,
    f"{SERVICE}/promotion": PROMOTION,
    f"{SERVICE}/draining.py": PROMOTION,
    f"{SERVICE}/problems.py": PROMOTION,
    f"{SERVICE}/serving.py": PROMOTION,
    f"{SERVICE}/status": PROMOTION,
    f"{SERVICE}/reasons.py": PROMOTION,
    f"{SERVICE}/settings.py": PROMOTION,
    **{
        f"{CLUSTER}/{place}": ("unit/cluster_reconciler", "scenario/cluster_reconciler")
        for place in (
            *("pods", "status", "reasons.py", "events.py", "config.py"),
            *("refusals.py", "redis_cleanup.py"),
        )
    },
    **{
        f"{JOB}/{place}": ("unit/job_reconciler", "scenario/job_reconciler")
        for place in (
            *("attempts.py", "batch.py", "cleanup.py", "deadlines.py", "outcome.py"),
            *("problems.py", "reasons.py", "submitter.py", "cron", "phases", "resources", "status"),
        )
    },
    f"{CLUSTER}/pki.py": ("scenario/cluster_reconciler/test_mtls.py",),
    f"{CLUSTER}/resources/tls.py": (
        "unit/cluster_reconciler/resources/test_certificates.py",
        "unit/cluster_reconciler/resources/test_tls.py",
        "scenario/cluster_reconciler/test_mtls.py",
    ),
    f"{COMMON}/runtime/fence.py": ("unit/common/runtime/test_fence.py",),
    f"{COMMON}/runtime/ownership.py": (
        "unit/common/runtime/test_ownership.py",
        "unit/common/runtime/test_membership.py",
    ),
    f"{COMMON}/bus/subjects.py": ("unit/common/bus/test_subjects.py",),
    f"{COMMON}/ray/autoscaled_capacity.py": (
        "unit/common/ray/test_autoscaled_capacity.py",
        "scenario/upgrade/test_parity.py",
    ),
    f"{COMMON}/ray/exposition.py": ("unit/common/ray/test_exposition.py",),
    f"{COMMON}/ray/request_metrics.py": ("unit/common/ray/test_request_metrics.py",),
    f"{COMMON}/upgrade/gates.py": ("unit/common/upgrade/test_gates.py",),
    f"{COMMON}/upgrade/sequential.py": ("unit/common/upgrade/test_gates.py",),
    f"{COMMON}/upgrade/increases.py": ("unit/common/upgrade/test_increases.py",),
    f"{COMMON}/upgrade/windows.py": ("unit/common/upgrade/test_windows.py",),
    f"{TRAFFIC}/migration/progression.py": (
        "unit/traffic_manager/migration/test_progression.py",
        "scenario/upgrade/test_upgrade_policy.py",
    ),
    f"{COMMON}/upgrade/policy.py": ("unit/common/upgrade/test_policy.py",),
    f"{COMMON}/upgrade/fields.py": ("unit/common/upgrade/test_policy.py",),
    **{
        f"{PAGE}/{name}.py": (f"unit/dashboard/incluster/test_{test}.py",)
        for name, test in (
            ("attributes", "attributes"),
            ("identity", "identity"),
            ("authentication", "authentication"),
            ("reviews", "reviews"),
            ("places", "sessions"),
        )
    },
    f"{COMMON}/ray/serve_writer.py": (
        "scenario/upgrade/test_gates.py",
        "scenario/upgrade/test_forward.py",
    ),
}
"""The tests that can kill the mutants of a file or folder, by its path.

Paths of tests are below tests/.
"""


class MutantTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A mutant to try. `what` describes the change for people."""

    file: str
    what: str
    sources: dict[str, str]
    """The changed text of each file, by path. All files belong to one package."""
    tests: tuple[str, ...]


def by_hand(only: str) -> Iterator[MutantTrial]:
    """Yield the mutants of `table` in files whose path contains `only`."""
    for mutant in TABLE:
        sources: dict[str, str] = {}
        for edit in mutant.edits:
            source = sources.get(edit.file) or (ROOT / edit.file).read_text()
            if source.count(edit.old) != 1:
                sys.exit(
                    f"{edit.file} does not have exactly once what case {mutant.case} changes: "
                    f"{edit.old!r}"
                )
            sources[edit.file] = source.replace(edit.old, edit.new)
        if only in mutant.file:
            yield MutantTrial(
                file=mutant.file,
                what=f"case {mutant.case}: {mutant.what}",
                sources=sources,
                tests=(mutant.test,),
            )


def generated(only: str) -> Iterator[MutantTrial]:
    """Yield the generated mutants of the code that makes decisions.

    Only files whose path contains `only` are changed.
    """
    for place, tests in DECIDING.items():
        path = ROOT / place
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in files:
            name = str(file.relative_to(ROOT))
            if only in name:
                yield from (
                    MutantTrial(file=name, what=str(edit), sources={name: edit.source}, tests=tests)
                    for edit in operators.generate_mutants(file.read_text())
                )


class KillingTests:
    """Tries mutants, and remembers which tests killed the mutants of each file.

    The same few tests kill most mutants of a file, so they run first.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def survives(self, job: MutantTrial) -> bool:
        """Return whether all tests pass with the mutant.

        Tests that killed other mutants of the file run first.
        """
        known = self._known.setdefault(job.file, [])
        if known and _failing(job, tuple(known)) is not None:
            return False
        killer = _failing(job, tuple(f"tests/{test}" for test in job.tests))
        if killer:
            known.append(killer)
        return killer is None


def _failing(job: MutantTrial, tests: tuple[str, ...]) -> str | None:
    """Run tests on a mutant.

    Return the name of the first test that fails; None if all pass. The name is empty if the tests
    timed out or could not be loaded.
    """
    package = ROOT / job.file.partition("/src/")[0] / "src"
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "src"
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for file, text in job.sources.items():
            (copy / file.partition("/src/")[2]).write_text(text)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no"]
        path = os.pathsep.join(filter(None, (str(copy), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*command, *tests],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TEST_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ""
    if done.returncode not in {0, 1, 2}:
        sys.exit(f"{job.file}: {job.what}: the tests did not run\n{done.stdout[-800:]}")
    if done.returncode == 0:
        return None
    failed = FAILED.search(done.stdout)
    return failed[1] if failed is not None else ""


def main() -> int:
    """Parse the command line, try the mutants, and print the survivors.

    Return 1 if a mutant survives.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    made = [] if args.table else list(generated(args.only))
    if args.most:
        made = random.Random(args.seed).sample(made, min(args.most, len(made)))
    jobs = [*by_hand(args.only), *made]
    print(f"{len(jobs)} mutants")
    left: list[MutantTrial] = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for number, (job, lives) in enumerate(
            zip(jobs, pool.map(KillingTests().survives, jobs), strict=True), start=1
        ):
            left += [job] if lives else []
            print(
                f"{number}/{len(jobs)} {'SURVIVES' if lives else 'killed  '} {job.file}: "
                f"{job.what}",
                flush=True,
            )
    print(f"{len(jobs) - len(left)} of {len(jobs)} killed; survivors:")
    for job in left:
        print(f"  {job.file}: {job.what}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
