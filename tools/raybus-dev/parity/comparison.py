"""Runs a case with both operators and compares the outcomes round by round."""

from collections.abc import Generator
from typing import Final

import msgspec

from common import errors
from common.api import ray_service
from common.api.opaque import Body, Json
from common.ray import spec_hash
from parity import declared, jobs, ours, rounds
from parity.cases import CLUSTER_UID, Case, OperatorSettings, RoundOutcome
from parity.comparable import Difference, comparable, differences, renamed
from service_reconciler import validation
from service_reconciler.resources import services

TRIES: Final = 1000
"""Maximum repetitions of a round in which KubeRay chooses at random.

The rarest known choice has a probability of 3 %.
"""


async def of_raybus(case: Case, *, version: str) -> list[Json]:
    """Run a case with raybus. Return the outcome of each round, normalized for the comparison."""
    outcomes, objects, known = list[Json](), case.objects, case.names
    for number, steps in enumerate(([], *case.rounds)):
        objects = rounds.play(objects, steps, known)
        outcome = renamed(
            await ours.reconcile(case.settings, objects, version=version, one_host=case.one_host),
            known,
            number=number,
        )
        outcomes.append(comparable(outcome))
        objects, known = outcome.objects, known | outcome.pods
    return outcomes


Asked = tuple[OperatorSettings, list[Body]]
Rounds = Generator[Asked, RoundOutcome, list[Json]]
"""A run with KubeRay, as a generator.

It yields requests to KubeRay's program, is sent the outcome of each request, and returns the
normalized outcome of each round.
"""


def of_kuberay(case: Case, *, wanted: list[Json], release: str) -> Rounds:
    """Run a case with KubeRay.

    `wanted` is raybus's outcome of each round, `release` KubeRay's minor version. If KubeRay
    chooses at random in a round, the round is repeated up to `TRIES` times, until it differs from
    `wanted` only as declared.
    """
    outcomes, objects, known = list[Json](), case.objects, case.names
    for number, steps in enumerate(([], *case.rounds)):
        objects = rounds.play(objects, steps, known)
        outcome, seen = RoundOutcome(), Json()
        for _ in range(TRIES if chooses(objects) else 1):
            answer = yield case.settings, objects
            outcome = collected(renamed(answer, known, number=number))
            seen = comparable(outcome)
            if not declared.undeclared(
                compare([seen], [wanted[number]]), [seen], [wanted[number]], release=release
            ):
                break
        outcomes.append(seen)
        objects, known = outcome.objects, known | outcome.pods
    return outcomes


def collected(outcome: RoundOutcome) -> RoundOutcome:
    """Remove the objects that the garbage collector deletes after their RayCluster is deleted."""
    if any(body["kind"] == "RayCluster" for body in outcome.objects):
        return outcome
    left = [body for body in outcome.objects if not _is_owned(body)]
    return msgspec.structs.replace(outcome, objects=left)


def _is_owned(body: Body) -> bool:
    return any(owner["uid"] == CLUSTER_UID for owner in body["metadata"].get("ownerReferences", []))


def service_of_raybus(case: Case) -> Json:
    """Return what raybus derives from a RayService: a validation problem, or Services and hash."""
    assert case.service is not None
    service, config = ray_service.decode(case.service), case.settings.config("")
    if (violation := validation.violation(service, config.gates)) is not None:
        return comparable(RoundOutcome(built={"problem": violation.message}))
    spec, name = service.raw_cluster_config, f"{service.metadata.name}-abcde"
    built: Json = {
        "head": services.head(
            service, name, config=spec, has_cluster_ip=config.head_service_has_cluster_ip
        )
    }
    try:
        built["serve"] = services.serve(service, name, config=spec)
    except errors.InvalidSpec as problem:
        built["serveProblem"] = str(problem)
    return comparable(RoundOutcome(built=built, hashes=[spec_hash.cluster_spec_hash(spec)]))


def service_of_kuberay(case: Case) -> Rounds:
    """Ask KubeRay what it derives from the case's RayService; return the normalized outcome."""
    assert case.service is not None
    return [comparable((yield case.settings, [case.service]))]


def job_of_kuberay(case: Case) -> Rounds:
    """Ask KubeRay for its plan for the case's RayJob; return the normalized outcome."""
    assert case.job is not None
    return [jobs.of_kuberay((yield case.settings, [case.job, *case.objects]))]


def cron_job_of_kuberay(case: Case) -> Rounds:
    """Ask KubeRay for its plan for the case's RayCronJob; return the normalized outcome."""
    assert case.cron_job is not None
    return [jobs.of_kuberay((yield case.settings, [case.cron_job]))]


def chooses(objects: list[Body]) -> bool:
    """Return whether KubeRay chooses at random among the replicas of these objects.

    It does for groups with several hosts per replica, because it keeps such replicas in a Go map.
    """
    groups = (
        body.get("spec", {}).get("workerGroupSpecs", [])
        for body in objects
        if body["kind"] == "RayCluster"
    )
    return any(group.get("numOfHosts", 1) > 1 for some in groups for group in some)


def compare(theirs: list[Json], ours_: list[Json]) -> list[Difference]:
    """Return the differences of the first round that has any. Later ones may follow from them.

    `theirs` and `ours_` are the outcomes of KubeRay and raybus, round by round.
    """
    for number, (one, other) in enumerate(zip(theirs, ours_, strict=True)):
        if all_differences := [*differences(one, other)]:
            return [
                msgspec.structs.replace(difference, place=f"{number}/{difference.place}")
                for difference in all_differences
            ]
    return []
