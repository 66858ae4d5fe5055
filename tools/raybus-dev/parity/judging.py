"""Draws cases, runs them with both operators, and judges the differences."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from common.api.opaque import Json
from parity import comparison, declared, drawing, jobs, older_crds, shrinking, theirs
from parity.cases import Case
from parity.comparable import Difference
from parity.theirs import KubeRay

PANIC: Final = "panic"
PRUNED_RELEASE: Final = "1.6"
"""The release of KubeRay whose CRDs lack fields that raybus has."""
CRDS: Final = Path("config") / "crd" / "bases"
"""The folder of the CRDs in KubeRay's folder `ray-operator`."""


class CaseJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing one case. `found` are the undeclared differences."""

    number: int
    found: list[Difference] = []
    declared: dict[str, int] = {}
    """Number of declared differences by the topic of their entry."""


class Judge:
    """Runs cases with KubeRay's program and with raybus's code, and judges the differences.

    `source` is KubeRay's folder `ray-operator`.
    """

    def __init__(self, kuberay: KubeRay, source: Path) -> None:
        self._kuberay, self._source = kuberay, source
        self._loop = asyncio.new_event_loop()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

    def draw(self, seed: int, number: int) -> Case:
        """Draw a case that uses only feature gates that this KubeRay knows.

        For KubeRay 1.6, fields that its CRDs lack are also removed.
        """
        case = drawing.case(seed, number, self._kuberay.gates)
        is_current = self._kuberay.release != PRUNED_RELEASE
        return case if is_current else older_crds.prune_case(case, self._source / CRDS)

    def judge(self, cases: Mapping[int, Case]) -> list[CaseJudgement]:
        """Compare the operators on cases, given by number.

        An exception in raybus's code counts as a difference.
        """
        judgements: list[CaseJudgement] = []
        ours: dict[int, list[Json]] = {}
        for number, case in cases.items():
            try:
                ours[number] = self.ours(case)
            except Exception as problem:  # noqa: BLE001  (any failure of ours is a difference)
                text = f"{type(problem).__name__}: {problem}"
                judgements.append(
                    CaseJudgement(number=number, found=[Difference(f"0/{PANIC}", None, text)])
                )
        theirs_ = self.theirs({number: cases[number] for number in ours}, ours)
        return judgements + [
            self._judgement(number, theirs_[number], ours[number]) for number in ours
        ]

    def theirs(
        self, cases: Mapping[int, Case], ours: Mapping[int, list[Json]]
    ) -> dict[int, list[Json]]:
        """Run cases with KubeRay; return the normalized outcomes of each case's rounds.

        Both `ours`, raybus's outcomes, and the result have the case number as key. All cases
        advance together, one round per exchange with KubeRay's program, because an exchange is
        slow.
        """
        running, answered = dict[int, comparison.Rounds](), dict[int, list[Json]]()
        asked: dict[int, comparison.Asked] = {}
        for number, case in cases.items():
            if case.service is not None:
                started = comparison.service_of_kuberay(case)
            elif case.job is not None:
                started = comparison.job_of_kuberay(case)
            elif case.cron_job is not None:
                started = comparison.cron_job_of_kuberay(case)
            else:
                started = comparison.of_kuberay(
                    case, wanted=ours[number], release=self._kuberay.release
                )
            running[number], asked[number] = started, next(started)
        while asked:
            answers = dict(zip(asked, self._kuberay.answer([*asked.values()]), strict=True))
            asked = {}
            for number, answer in answers.items():
                try:
                    asked[number] = running[number].send(answer)
                except StopIteration as end:
                    answered[number] = end.value
        return answered

    def ours(self, case: Case) -> list[Json]:
        """Run a case with raybus. Return the normalized outcome of each round."""
        if case.service is not None:
            return [comparison.service_of_raybus(case)]
        if case.job is not None:
            return [jobs.of_raybus(case)]
        if case.cron_job is not None:
            return [jobs.cron_job_of_raybus(case)]
        return self._loop.run_until_complete(
            comparison.of_raybus(case, version=self._kuberay.version)
        )

    def _judgement(self, number: int, theirs_: list[Json], ours: list[Json]) -> CaseJudgement:
        undeclared, topics = list[Difference](), Counter[str]()
        for difference in comparison.compare(theirs_, ours):
            entry = declared.entry_of(difference, theirs_, ours, release=self._kuberay.release)
            if entry is None:
                undeclared.append(difference)
            else:
                topics[entry.topic] += 1
        return CaseJudgement(number=number, found=undeclared, declared=dict(topics))

    def shrunk(self, case: Case, signature: str) -> Case:
        """Return a reduced case that still has a difference with this signature."""
        return shrinking.shrunk(
            case,
            lambda smaller: any(
                difference.signature == signature
                for difference in self.judge({0: smaller})[0].found
            ),
        )


_RUNNING: Final[list[tuple[object, Judge]]] = []
"""The judge of this worker process, with the context manager of its KubeRay program."""


def begin(program: Path, source: Path) -> None:
    """Start KubeRay's program as a child of this worker process, and end it with this process."""
    context = theirs.started(program)
    _RUNNING.append((context, Judge(context.__enter__(), source)))


def work(seed: int, numbers: Sequence[int]) -> list[CaseJudgement]:
    """Draw the cases with these numbers and judge them.

    Called in a worker process after `begin`.
    """
    ((_, judge),) = _RUNNING
    return judge.judge({number: judge.draw(seed, number) for number in numbers})
