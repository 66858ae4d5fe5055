"""The audit log is read as the API server writes it: the writer, the version that it was based on, the version it became."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from chaos import audit_trail
from chaos.audit_trail import Trail
from chaos.checker.evidence import Write
from common.bus.subjects import ObjectRef
from support.tables import cases

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = "raybus-cluster-reconciler/v0.1.0 (cluster-reconciler-2)"


def a_line(**fields: Any) -> dict[str, Any]:
    answer = {"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "12"}}
    defaults: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "verb": "update",
        "stage": "ResponseComplete",
        "userAgent": AGENT,
        "stageTimestamp": "2026-01-01T00:00:02.500000Z",
        "objectRef": {
            "resource": "rayclusters",
            "subresource": "status",
            "namespace": "ns",
            "name": "c",
        },
        "responseStatus": {"code": 200},
        "requestObject": {"metadata": {"name": "c", "resourceVersion": "11"}},
        "responseObject": answer,
    }
    return {**defaults, **fields}


def read(folder: Path, *lines: dict[str, Any]) -> Trail:
    log = folder / "audit.log"
    log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return audit_trail.read(log, {}, began=BEGAN)


def the_write(folder: Path, **fields: Any) -> Write:
    (found,) = read(folder, a_line(**fields)).writes
    return found


def test_an_update(tmp_path: Path) -> None:
    found = the_write(tmp_path)
    assert (found.version, found.at, found.based_on) == (12, 2.5, "11")
    assert (found.service, found.replica) == ("cluster-reconciler", "cluster-reconciler-2")
    assert (found.resource, found.top_owner) == (
        "rayclusters/status",
        ObjectRef("RayCluster", "ns", "c"),
    )


@cases(
    ("verb", "body", "base"),
    {
        "a patch": (
            "patch",
            {"metadata": {"resourceVersion": "7", "annotations": {"a": None}}},
            "7",
        ),
        "a patch of whatever is there": ("patch", {"metadata": {"labels": {"a": None}}}, ""),
        "a JSON patch": ("patch", [{"op": "add"}], ""),
        "an update of whatever is there": ("update", {"metadata": {"name": "c"}}, ""),
        "a deletion of this one": ("delete", {"preconditions": {"uid": "u"}}, "u"),
        "a deletion of whatever has the name": ("delete", {"kind": "DeleteOptions"}, ""),
    },
)
def test_what_it_is_based_on(tmp_path: Path, verb: str, body: object, base: str) -> None:
    assert the_write(tmp_path, verb=verb, requestObject=body).based_on == base


def test_a_pods_root_is_its_clusters(tmp_path: Path) -> None:
    labels = {"ray.io/originated-from-cr-name": "s", "ray.io/originated-from-crd": "RayService"}
    cluster = a_line(
        responseObject={"metadata": {"name": "c", "namespace": "ns", "labels": labels}}
    )
    meta = {
        "name": "p",
        "namespace": "ns",
        "resourceVersion": "13",
        "labels": {"ray.io/cluster": "c"},
    }
    pod = a_line(
        verb="create",
        objectRef={"resource": "pods", "namespace": "ns"},
        responseObject={"metadata": meta},
    )
    assert [each.top_owner for each in read(tmp_path, cluster, pod).writes] == [
        ObjectRef("RayService", "ns", "s")
    ] * 2


def test_a_deletion_without_a_version(tmp_path: Path) -> None:
    answer: dict[str, Any] = {"kind": "Status", "status": "Success", "metadata": {}}
    found = the_write(tmp_path, verb="delete", responseObject=answer)
    assert (found.version, found.name) == (0, "c")


def test_a_write_that_ends_a_deletion_makes_no_version(tmp_path: Path) -> None:
    body: dict[str, Any] = {"metadata": {"resourceVersion": "12", "finalizers": []}}
    assert the_write(tmp_path, verb="patch", requestObject=body).version == 0


@cases(
    "fields",
    {
        "somebody else's": {"userAgent": "kube-controller-manager/v1 (linux/amd64)"},
        "refused": {"responseStatus": {"code": 409}},
        "a user's": {"userAgent": "chaos"},
    },
)
def test_it_passes_over(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert read(tmp_path, a_line(**fields)).writes == []


def test_logs_that_were_rotated_are_read_too_and_half_a_line_is_not(tmp_path: Path) -> None:
    line = msgspec.json.encode(a_line()) + b"\n"
    (tmp_path / "audit-2026-01-01T00-00-00.000.log").write_bytes(line)
    log = tmp_path / "audit.log"
    log.write_bytes(line + line[:50])
    assert len(audit_trail.read(log, {}, began=BEGAN).writes) == 2


def test_half_a_line_of_an_api_server_that_was_killed_costs_no_other_line(tmp_path: Path) -> None:
    line = msgspec.json.encode(a_line()) + b"\n"
    log = tmp_path / "audit.log"
    log.write_bytes(line + line[:50] + line)
    assert len(audit_trail.read(log, {}, began=BEGAN).writes) == 2


def test_watches_are_counted_by_the_client_that_opened_them(tmp_path: Path) -> None:
    lines = [a_line(verb="watch", userAgent="raybus-watcher (watcher-0)")] * 2
    assert read(tmp_path, *lines).watches == {"raybus-watcher (watcher-0)": 2}
