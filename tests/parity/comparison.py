"""Runs a case on both sides and compares, round by round."""

from collections.abc import Generator
from typing import Final

import msgspec

from common import errors
from common.api import ray_service
from common.api.opaque import Body, Json
from common.ray import spec_hash
from parity import declared, ours, rounds
from parity.cases import CLUSTER_UID, Case, OperatorSettings, Outcome
from parity.comparable import Difference, comparable, differences, renamed
from service_reconciler import validation
from service_reconciler.resources import services

TRIES: Final = 1000
"""How often KubeRay is asked for a choice that it makes at random: the rarest one that is known comes in 3 of 100 answers."""


async def of_raybus(case: Case, *, version: str) -> list[Json]:
    """Return what raybus makes of a case, a comparable outcome a round."""
    found, objects, known = list[Json](), case.objects, case.names
    for number, steps in enumerate(([], *case.rounds)):
        objects = rounds.play(objects, steps, known)
        outcome = renamed(
            await ours.reconcile(case.settings, objects, version=version, one_host=case.one_host),
            known,
            number=number,
        )
        found.append(comparable(outcome))
        objects, known = outcome.objects, known | outcome.pods
    return found


Asked = tuple[OperatorSettings, list[Body]]
Rounds = Generator[Asked, Outcome, list[Json]]
"""Yields what KubeRay is asked, gets its outcome, and returns a comparable outcome a round."""


def of_kuberay(case: Case, *, wanted: list[Json], release: str) -> Rounds:
    """Ask KubeRay what it makes of a case: where it chooses at random, again, until it chooses as `wanted` or for `TRIES` times."""
    found, objects, known = list[Json](), case.objects, case.names
    for number, steps in enumerate(([], *case.rounds)):
        objects = rounds.play(objects, steps, known)
        outcome, seen = Outcome(), Json()
        for _ in range(TRIES if chooses(objects) else 1):
            answer = yield case.settings, objects
            outcome = collected(renamed(answer, known, number=number))
            seen = comparable(outcome)
            if not declared.undeclared(
                compare([seen], [wanted[number]]), [seen], [wanted[number]], release=release
            ):
                break
        found.append(seen)
        objects, known = outcome.objects, known | outcome.pods
    return found


def collected(outcome: Outcome) -> Outcome:
    """Return an outcome without what the garbage collector deletes with a RayCluster."""
    if any(each["kind"] == "RayCluster" for each in outcome.objects):
        return outcome
    left = [each for each in outcome.objects if not _is_owned(each)]
    return msgspec.structs.replace(outcome, objects=left)


def _is_owned(body: Body) -> bool:
    return any(each["uid"] == CLUSTER_UID for each in body["metadata"].get("ownerReferences", []))


def service_of_raybus(case: Case) -> Json:
    """Return what raybus makes of a RayService without anything else."""
    assert case.service is not None
    service, config = ray_service.decode(case.service), case.settings.config("")
    if (found := validation.violation(service, config.gates)) is not None:
        return comparable(Outcome(built={"problem": found.message}))
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
    return comparable(Outcome(built=built, hashes=[spec_hash.cluster_spec_hash(spec)]))


def service_of_kuberay(case: Case) -> Rounds:
    """Ask KubeRay what it makes of a RayService without anything else."""
    assert case.service is not None
    return [comparable((yield case.settings, [case.service]))]


def chooses(objects: list[Body]) -> bool:
    """Return whether KubeRay chooses at random here: among replicas of several hosts, which it holds in a map."""
    groups = (
        each.get("spec", {}).get("workerGroupSpecs", [])
        for each in objects
        if each["kind"] == "RayCluster"
    )
    return any(group.get("numOfHosts", 1) > 1 for some in groups for group in some)


def compare(theirs: list[Json], ours_: list[Json]) -> list[Difference]:
    """Return the differences of the first round that has any: those after it follow from it."""
    for number, (one, other) in enumerate(zip(theirs, ours_, strict=True)):
        if found := [*differences(one, other)]:
            return [msgspec.structs.replace(each, place=f"{number}/{each.place}") for each in found]
    return []
