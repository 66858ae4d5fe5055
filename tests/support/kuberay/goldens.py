"""The files of `tests/golden/kuberay`: a manifest of a user, and the objects that KubeRay made of
it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from common import labels
from common.api.opaque import Body
from localcluster.api import Document
from support import manifests
from support.kuberay.objects import CLUSTER_UID
from support.kuberay.settings import OPERATOR_FILE, Setting

NAMESPACE: Final = "kuberay-golden"
"""The namespace in which KubeRay made the objects; it stands in some of their fields."""

_CERTIFICATE: Final = re.compile(r"ray-(?:head-cert|worker-cert|ca-certificate)-(.+)")
_CHOSEN: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "namespace",
)


def users(folder: Path) -> list[Document]:
    """Return the objects that users apply: first those that RayClusters need, then the RayClusters."""
    found = [
        document
        for path in sorted(folder.glob("*.yaml"))
        if path.name != OPERATOR_FILE
        for document in manifests.parse(path.read_text())
    ]
    return sorted(found, key=lambda each: each["kind"] == "RayCluster")


def clusters(setting: Setting) -> list[str]:
    """Return the names of the RayClusters of a setting."""
    return [
        each["metadata"]["name"] for each in manifests.of_kind(users(setting.folder), "RayCluster")
    ]


def load(setting: Setting, cluster: str, *, namespace: str) -> list[Body]:
    """Return a RayCluster and then the objects that KubeRay made of it, as if it had made them in
    this namespace.
    """
    text = (setting.folder / f"{cluster}.json").read_text().replace(NAMESPACE, namespace)
    return msgspec.json.decode(text, type=list[Body])


def everything(setting: Setting, *, namespace: str) -> list[Body]:
    """Return the objects that KubeRay made of all RayClusters of a setting."""
    return [each for name in clusters(setting) for each in load(setting, name, namespace=namespace)]


def save(setting: Setting, objects: Sequence[Body]) -> list[Path]:
    """Write the objects of a namespace, one file for each RayCluster; return the files."""
    return [_save(setting, name, of_cluster(objects, name)) for name in clusters(setting)]


def _save(setting: Setting, name: str, objects: Sequence[Body]) -> Path:
    path = setting.folder / f"{name}.json"
    uid = next(each["metadata"]["uid"] for each in objects if each["kind"] == "RayCluster")
    text = msgspec.json.encode([_lasting(each) for each in objects], order="sorted").decode()
    text = text.replace(uid, CLUSTER_UID).replace(
        f"-ca-secret-{uid[:8]}", f"-ca-secret-{CLUSTER_UID[:8]}"
    )
    path.write_text(msgspec.json.format(text, indent=1) + "\n")
    return path


def of_cluster(objects: Sequence[Body], name: str) -> list[Body]:
    """Return a RayCluster and the objects that belong to it."""
    return [each for each in objects if _cluster(each) == name]


def owned(objects: Sequence[Body]) -> list[Body]:
    """Return RayClusters and the objects that belong to them."""
    return [each for each in objects if _cluster(each) is not None]


def strays(objects: Sequence[Body], applied: Sequence[Document]) -> list[str]:
    """Return the objects that belong to no RayCluster and were not applied by a user."""
    known = {(each["kind"], each["metadata"]["name"]) for each in applied}
    found = [(each["kind"], each["metadata"]["name"]) for each in objects if _cluster(each) is None]
    return [f"{kind} {name}" for kind, name in found if (kind, name) not in known]


def _cluster(body: Body) -> str | None:
    meta = body["metadata"]
    if body["kind"] == "RayCluster":
        return meta["name"]
    owners = [
        each["name"] for each in meta.get("ownerReferences", []) if each["kind"] == "RayCluster"
    ]
    certificate = meta.get("annotations", {}).get("cert-manager.io/certificate-name", "")
    if (of_cluster := _CERTIFICATE.fullmatch(certificate)) is not None:
        return of_cluster[1]
    return owners[0] if owners else meta.get("labels", {}).get(labels.CLUSTER)


def _lasting(body: Body) -> Body:
    """Return an object without the fields that are specific to one server; pods keep their address,
    because statuses contain it.
    """
    meta = {field: value for field, value in body["metadata"].items() if field not in _CHOSEN}
    meta["namespace"] = NAMESPACE
    for each in meta.get("ownerReferences", []):
        if each["kind"] == "Certificate":
            each["uid"] = "uid-of-the-certificate"
    kept: dict[str, Any] = {**body, "metadata": meta}
    match body["kind"]:
        case "RayCluster":
            pass
        case "Pod":
            kept["status"] = {"podIP": body["status"].get("podIP", "")}
        case "Secret":
            kept["data"] = dict.fromkeys(body.get("data", {}), "U0VDUkVU")
        case _:
            kept.pop("status", None)
    return kept
