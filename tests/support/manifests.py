"""The manifests of `deploy/` as data: the files that `kustomization.yaml` files name under
`resources`, without kubectl.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "base"
NAMESPACE = "raybus"
SERVICES = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)


def read(folder: Path) -> list[Document]:
    """Return every object that a folder's kustomization names, without its patches."""
    return list(_resources(folder))


def _resources(folder: Path) -> Iterator[Document]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for entry in kustomization["resources"]:
        path = (folder / entry).resolve()
        if path.is_dir():
            yield from _resources(path)
        else:
            yield from parse(path.read_text())


def parse(text: str) -> list[Document]:
    """Return the objects of a YAML stream, with the fast loader if it is installed, since CRDs are
    large.
    """
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(text, Loader=loader) if document]


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    """Return the objects of some kinds."""
    return [document for document in documents if document["kind"] in kinds]


def named(documents: list[Document], kind: str, name: str) -> Document:
    """Return one object."""
    return next(each for each in of_kind(documents, kind) if each["metadata"]["name"] == name)


def pod_specs(documents: list[Document]) -> dict[str, Document]:
    """Return the pod spec of each workload by its name."""
    found = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in of_kind(documents, "Deployment", "StatefulSet", "Job")
    }
    timed = {
        each["metadata"]["name"]: each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for each in of_kind(documents, "CronJob")
    }
    return found | timed


def containers(documents: list[Document]) -> dict[str, Document]:
    """Return every container by `workload/container`."""
    return {
        f"{workload}/{container['name']}": container
        for workload, spec in pod_specs(documents).items()
        for container in [*spec.get("initContainers", []), *spec["containers"]]
    }


def rights(documents: list[Document], account: str) -> dict[str, set[str]]:
    """Return the rights of a ServiceAccount: `scope group/resource[=name]` to verbs."""
    found: dict[str, set[str]] = {}
    for binding in of_kind(documents, "RoleBinding", "ClusterRoleBinding"):
        if not any(subject["name"] == account for subject in binding["subjects"]):
            continue
        role = named(documents, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        scope = "cluster" if role["kind"] == "ClusterRole" else "own"
        for rule in role["rules"]:
            for key in _keys(scope, rule):
                found.setdefault(key, set()).update(rule["verbs"])
    return found


def _keys(scope: str, rule: Document) -> list[str]:
    names = [f"={name}" for name in rule.get("resourceNames", [])] or [""]
    return [
        f"{scope} {group}/{resource}{name}"
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in names
    ]
