"""`raybus crds check` names the objects that a removed or changed field concerns."""

import copy
from typing import Any

import pytest

from common import errors
from common.kube.resources import RAY_CLUSTER
from crd_generator import manifest
from raybus_cli.crds import check
from raybus_cli.crds.check import DefinitionReport
from raybus_cli.doctor.survey import CRD
from support.fakes.kube import FakeKube, Request

NAME = "rayclusters.ray.io"
Schema = dict[str, Any]


@pytest.fixture
def kube() -> FakeKube:
    """Return a cluster with the CRDs of this version and one RayCluster."""
    found = FakeKube()
    for definition in manifest.list_definitions().values():
        found.put(CRD, {**definition, "metadata": {**definition["metadata"], "namespace": ""}})
    spec = {"rayVersion": "2.53.0", "retired": "x", "workerGroupSpecs": [{"groupName": "gpu"}]}
    found.put(RAY_CLUSTER, {"metadata": {"name": "demo", "namespace": "shop"}, "spec": spec})
    return found


def change_spec(kube: FakeKube, **fields: Schema) -> None:
    """Add fields to the CRD of RayClusters that is installed, or replace them."""
    definition = copy.deepcopy(manifest.list_definitions()["ray.io_rayclusters.yaml"])
    stored = next(each for each in definition["spec"]["versions"] if each["storage"])
    stored["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] |= fields
    definition["metadata"]["namespace"] = ""
    kube.put(CRD, definition)


async def report_clusters(kube: FakeKube) -> DefinitionReport:
    return next(each for each in await check.check(kube) if each.name == NAME)


async def test_the_crds_of_this_version_concern_no_object(kube: FakeKube) -> None:
    reports = await check.check(kube)
    assert all(report.is_harmless for report in reports)
    assert [line.partition(": ")[2] for line in check.format_lines(reports)] == [
        "has the fields of raybus 0.1.0"
    ] * len(reports)
    assert {request.verb for request in kube.requests} == {"get"}


async def test_a_removed_field_names_the_objects_that_lose_it(kube: FakeKube) -> None:
    change_spec(kube, retired={"type": "string"}, unused={"type": "string"})
    report = await report_clusters(kube)
    assert {change.path: change.objects for change in report.changes} == {
        "spec.retired": ["shop/demo"],
        "spec.unused": [],
    }
    assert not report.is_harmless
    lines = [*check.format_lines([report])]
    assert "  × spec.retired: removed; concerns 1 object(s): shop/demo" in lines
    assert "  √ spec.unused: removed; concerns no object" in lines
    remedy = check.format_remedy([report])
    assert remedy is not None
    assert "save the values of a removed field" in remedy
    assert "type" not in remedy


async def test_a_changed_type_names_the_objects_that_have_the_field(kube: FakeKube) -> None:
    change_spec(kube, rayVersion={"type": "integer"})
    (line,) = [*check.format_lines([await report_clusters(kube)])][1:]
    assert line == "  × spec.rayVersion: integer, now string; concerns 1 object(s): shop/demo"


async def test_new_fields_concern_no_object(kube: FakeKube) -> None:
    change_spec(kube, autoscalerOptions={"type": "object", "properties": {}})
    report = await report_clusters(kube)
    assert report.is_harmless
    assert check.format_remedy([report]) is None
    assert "spec.autoscalerOptions.idleTimeoutSeconds" in report.new_fields
    assert " new (spec.autoscalerOptions." in next(check.format_lines([report]))


async def test_a_crd_that_is_not_installed_is_named(kube: FakeKube) -> None:
    await kube.delete(CRD, None, NAME)
    report = await report_clusters(kube)
    assert (report.is_installed, report.is_harmless) == (False, True)
    assert [*check.format_lines([report])] == [f"{NAME}: not installed"]


async def test_objects_that_may_not_be_listed_count_as_concerned(kube: FakeKube) -> None:
    def forbid(request: Request) -> errors.RaybusError | None:
        return errors.Forbidden("no") if request.verb == "list" else None

    kube.faults.append(forbid)
    change_spec(kube, retired={"type": "string"})
    report = await report_clusters(kube)
    assert not report.is_harmless
    assert "you may not list the objects" in [*check.format_lines([report])][1]
    remedy = check.format_remedy([report])
    assert remedy is not None
    assert "repeat the check as a user who may list the objects" in remedy
