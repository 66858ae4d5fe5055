"""Whatever a tenant writes harms nobody but himself; the same attacks run on real servers with `make hostile`."""

import copy
import os
from typing import Final

import pytest
from hypothesis import given, settings

from common.api.opaque import Body
from common.kube.resources import RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB, RAY_SERVICE
from common.runtime.key import Key
from scenario.hostile import attacks, nasty
from scenario.hostile.attacks import CLUSTERS, CRON_JOBS, JOBS, SERVICES, TENANT, Attack
from scenario.hostile.numbered import KNOWN, Numbered
from scenario.hostile.tenancy import Failure, suffered
from support import crd_schema
from support.fakes.kube import Request
from support.laws import tenancies

COUNT: Final = int(os.environ.get("HOSTILE", "100"))
"""Number of attacks; `HOSTILE=2000 pytest tests/scenario/hostile` tries more."""
NAME: Final = attacks.NAME
BORDERS: Final = {8, 9}
"""What no object of a tenant can bring about; `hostile.borders` tries it on real servers."""


@settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=attacks.UNCHECKED,
    print_blob=False,
)
@given(attacks.attacks())
def test_no_attack_breaks_a_law(attack: Attack) -> None:
    assert list(tenancies.broken(suffered(attack))) == []


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.number}: {known.text}")
def test_no_known_attack_breaks_a_law(known: Numbered) -> None:
    assert list(tenancies.broken(suffered(known.attack))) == []


def test_each_attack_that_an_object_can_bring_about_is_known() -> None:
    assert {each.number for each in KNOWN} | BORDERS == set(range(1, 24))


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_sound_service_comes_up_and_is_upgraded_here(number: int) -> None:
    """Else the laws would be vacuous for attacks on a serving service."""
    body = SERVICES[number]
    sound = Attack(
        resource=RAY_SERVICE, body=body, later=attacks.upgraded(body), metrics=b"ray_x 1\n"
    )
    tenancy = suffered(sound)
    assert list(tenancies.broken(tenancy)) == []
    created = [
        each.name
        for each in tenancy.kube.requests
        if (each.verb, each.kind) == ("create", "RayCluster")
    ]
    status = tenancy.last["RayService", TENANT, NAME]["status"]
    assert (len(created), status["activeServiceStatus"]["rayClusterName"]) == (2, created[1])


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_sound_job_comes_up_here(number: int) -> None:
    """Else the laws would be vacuous for attacks on jobs."""
    sound = Attack(resource=RAY_JOB, body=JOBS[number], later=attacks.upgraded(JOBS[number]))
    tenancy = suffered(sound)
    assert list(tenancies.broken(tenancy)) == []
    status = tenancy.last["RayJob", TENANT, NAME]["status"]
    states = {0: "Running", 1: "Running", 3: "Failed"}
    assert status["jobDeploymentStatus"] == states[number]
    assert status.get("jobStatus", "") == ("RUNNING" if number == 1 else "")
    assert not tenancy.kube.all(RAY_JOB, TENANT)


def test_a_sound_schedule_starts_jobs_here() -> None:
    body = CRON_JOBS[0]
    tenancy = suffered(Attack(resource=RAY_CRON_JOB, body=body, later=body))
    assert list(tenancies.broken(tenancy)) == []
    created = [each.name for each in tenancy.kube.requests if str(each).startswith("create RayJob")]
    assert len(set(created)) == len(created) >= 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("replicas", 60_000),
        ("replicas", 2**31 - 1),
        ("numOfHosts", 2**31 - 1),
        ("maxReplicas", -1),
        ("groupName", "../x"),
    ],
)
def test_a_refused_cluster_is_reported_with_the_reason(field: str, value: object) -> None:
    body: Body = copy.deepcopy(CLUSTERS[0])
    body["spec"]["workerGroupSpecs"][0][field] = value
    tenancy = suffered(Attack(resource=RAY_CLUSTER, body=body, later=body))
    assert list(tenancies.broken(tenancy)) == []
    assert tenancy.kube.events()


def test_each_law_sees_what_breaks_it() -> None:
    tenancy = suffered(Attack(resource=RAY_CLUSTER, body=CLUSTERS[0], later=CLUSTERS[0]))
    assert list(tenancies.broken(tenancy)) == []
    tenancy.failures.append(
        Failure(controller="raycluster", key=Key(TENANT, NAME), problem=KeyError("name"))
    )
    tenancy.kube.requests.append(
        Request(verb="get", kind="Secret", namespace="victim", name="token")
    )
    tenancy.reconciles["raycluster", Key(TENANT, NAME)] = tenancies.MAX_RECONCILES + 1
    tenancy.restarts.append("lost")
    tenancy.asked.add("169.254.169.254")
    tenancy.last["RayService", TENANT, "silent"] = {"metadata": {"name": "silent"}, "spec": {}}
    found = list(tenancies.broken(tenancy))
    seen = (
        "begins anew",
        "no input error",
        "another namespace",
        "169.254.169.254",
        "times",
        "without a reason",
    )
    assert [any(each in line for line in found) for each in seen] == [True] * len(seen)


def test_an_attack_that_does_not_give_its_reason_breaks_a_law() -> None:
    attack = Attack(
        resource=RAY_CLUSTER,
        body=CLUSTERS[0],
        later=CLUSTERS[0],
        reasons=frozenset({"LimitExceeded"}),
    )
    assert [line.partition(" is among")[0] for line in tenancies.broken(suffered(attack))] == [
        "none of ['LimitExceeded']"
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        (
            {"workerGroupSpecs": [{"groupName": 7}]},
            "spec.workerGroupSpecs[0].maxReplicas is missing",
        ),
        ({"headGroupSpec": None}, "spec.headGroupSpec is null"),
        ({"suspend": "yes"}, "spec.suspend is no boolean"),
        ({"rayVersion": 2}, "spec.rayVersion is no string"),
    ],
)
def test_what_the_crd_refuses_is_known_here(change: Body, problem: str | None) -> None:
    body: Body = copy.deepcopy(CLUSTERS[0])
    body["spec"].update(change)
    assert attacks.admitted("RayCluster", body) == problem
    assert crd_schema.pruned({"someday": nasty.nested(50)}, crd_schema.of("RayCluster")) == {}
