"""raybus and KubeRay's own code give the same results for recorded cases, except for the
differences that `differences.yaml` declares; and the harness can fail.
"""

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from common.api.opaque import Body, Json
from parity import comparison, declared, jobs, recorded
from parity.comparable import Difference, differences
from parity.recorded import RecordedCase, Recording

PARTS = 8
"""Number of tests among which the cases are divided, so that two processes share the work."""


@pytest.fixture(scope="module")
def recording() -> Recording:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return recorded.read()


def ours(each: RecordedCase, recording: Recording) -> list[Json]:
    if each.case.service is not None:
        return [comparison.service_of_raybus(each.case)]
    if each.case.job is not None:
        return [jobs.of_raybus(each.case)]
    if each.case.cron_job is not None:
        return [jobs.cron_job_of_raybus(each.case)]
    return asyncio.run(comparison.of_raybus(each.case, version=recording.version))


def undeclared(each: RecordedCase, recording: Recording) -> list[Difference]:
    made = ours(each, recording)
    found = comparison.compare(each.theirs, made)
    return declared.undeclared(found, each.theirs, made, release=recording.release)


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_differs_from_kuberay_but_what_is_declared(part: int, recording: Recording) -> None:
    found = {
        number: undeclared(each, recording)
        for number, each in enumerate(recording.cases)
        if number % PARTS == part
    }
    assert {number: [*map(str, some)] for number, some in found.items() if some} == {}


def test_the_cases_reach_every_feature(recording: Recording) -> None:
    kinds = {
        title.split(" ")[0]
        for each in recording.cases
        for some in each.theirs
        for title in some["objects"]
    }
    assert kinds >= {
        *("Pod", "Service", "ServiceAccount", "Role", "RoleBinding", "Secret", "NetworkPolicy"),
        *("Certificate", "Issuer"),
    }
    assert kinds >= {
        "Ingress",
        "PersistentVolumeClaim",
        "Route",
        "Job",
        "PodGroup.scheduling.volcano.sh",
        "PodGroup.scheduling.x-k8s.io",
    }
    assert {each.case.settings.scheduler for each in recording.cases} >= {
        "",
        "volcano",
        "yunikorn",
        "kai-scheduler",
        "scheduler-plugins",
    }
    pods = [
        pod
        for each in recording.cases
        for some in each.theirs
        for title, pod in some["objects"].items()
        if title.startswith("Pod ")
    ]
    assert any(
        container["name"] == "collector"
        for pod in pods
        for container in pod["spec"].get("containers", [])
    )


def without_an_env(pod: Body) -> Body:
    pod["spec"]["containers"][0]["env"].pop()
    return pod


def without_ports(service: Body) -> Body:
    return {**service, "spec": {**service["spec"], "ports": []}}


def without_labels(job: Body) -> Body:
    return {**job, "metadata": {**job["metadata"], "labels": {}}}


def in_capitals(script: str) -> str:
    return script.upper()


def one_more(number: int) -> int:
    return number + 1


@pytest.mark.parametrize(
    ("mutated", "change"),
    [
        ("cluster_reconciler.resources.head_pod.build", without_an_env),
        ("cluster_reconciler.resources.services.build_head", without_ports),
        ("common.ray.cluster_traits.target", one_more),
        ("job_reconciler.resources.submitter.build", without_labels),
        ("job_reconciler.resources.head_service.build", without_ports),
        ("job_reconciler.resources.command.build_for_job", in_capitals),
        ("job_reconciler.cron.plan.build_job", without_labels),
    ],
)
def test_a_mutant_of_a_builder_is_found(
    mutated: str,
    change: Callable[[Any], Any],
    recording: Recording,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, _, name = mutated.rpartition(".")
    original: Callable[..., Any] = getattr(importlib.import_module(module), name)

    def mutant(*args: Any, **named: Any) -> Any:
        return change(original(*args, **named))

    monkeypatch.setattr(mutated, mutant)
    assert any(undeclared(each, recording) for each in recording.cases)


def test_another_outcome_of_kuberay_is_found(recording: Recording) -> None:
    each, made = next(
        (each, made)
        for each in recording.cases
        if any("Pod " in title for title in each.theirs[0]["objects"])
        and not comparison.compare(each.theirs, made := ours(each, recording))
    )
    title = next(title for title in each.theirs[0]["objects"] if "Pod " in title)
    objects: Json = {**each.theirs[0]["objects"], title: {"spec": {}}}
    changed: list[Json] = [{**each.theirs[0], "objects": objects}, *each.theirs[1:]]
    assert declared.undeclared(
        comparison.compare(changed, made), changed, made, release=recording.release
    )


def test_a_field_that_one_side_lacks_is_a_difference() -> None:
    assert [
        str(each) for each in differences({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "x"}]})
    ] == ["a/x/v\n    KubeRay: 1\n    raybus:  nothing"]


def test_an_order_of_named_items_is_a_difference() -> None:
    one, other = {"name": "x"}, {"name": "y"}
    assert [each.place for each in differences({"env": [one, other]}, {"env": [other, one]})] == [
        "env/order"
    ]
