"""The list of laws of a chaos run: rules that raybus must never break.

The modules `history`, `writes`, `gaps`, `rest` and `jobs` judge them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from chaos.checker import gaps
from chaos.checker.evidence import Violation
from support.laws import Finding, Law, jobs


def _law(name: str, source: str, reads: str) -> Law[Sequence[Violation]]:
    def check(violations: Sequence[Violation]) -> Iterator[Finding]:
        return (
            (violation.about, violation.text) for violation in violations if violation.rule == name
        )

    return Law(name=name, source=source, reads=reads, check=check)


LAWS: Final = (
    _law("all reconciled at the end", "design rules", "all objects at the end of the run"),
    _law("one head", "raycluster §9", "the pods at every version of the API server"),
    _law("no more workers than wanted", "raycluster §9", "the pods, and the specs lately"),
    _law("one pod for one place", "ADR 7", "the indexes of the pods"),
    _law("one cluster for one spec", "rayservice §7.3", "the RayClusters of a RayService"),
    _law("weights make 100", "rayservice §8.10", "the weights of each route"),
    _law("no weight on what is gone", "rayservice §8.10", "the routes, the RayClusters"),
    _law("no status regresses", "ADR 6", "the observed generations"),
    _law("every write names its base", "design rules", "the bodies of writes in the audit log"),
    _law("no write by a fenced owner", "ADR 4", "the audit log, the Leases at that version"),
    _law("the autoscaler's pods", "raycluster §9", "the deletions of pods, the specs"),
    _law(gaps.RULE, "ADR 38", "the waits of probes, and the faults around them"),
    _law(gaps.STALLED, "ADR 38", "the waits of probes"),
    *(_law(law.name, law.source, law.reads) for law in jobs.LAWS),
)
