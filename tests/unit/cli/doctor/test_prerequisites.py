"""The checks before an installation: a cluster without faults, and each fault by itself."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from crd_generator import definitions, upgrade_policy
from raybus_cli.doctor import cli, prerequisites, survey
from raybus_cli.doctor.check import CheckState
from raybus_cli.doctor.facts import Facts, Right, StorageClass, Watching
from support import manifests
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of

OK, WARNING, FAILED, UNKNOWN = CheckState
DEPLOY = Path(__file__).parents[4] / "deploy"
INSTALLED = (
    *("base", "crds", "rights/everywhere", "rights/own-namespace", "rights/roles"),
    "overlays/production",
)


@cache
def _crds() -> dict[str, Any]:
    every = (*definitions.all_definitions().values(), upgrade_policy.definition())
    return {each["metadata"]["name"]: each for each in every}


def _class(*, default: bool) -> StorageClass:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return msgspec.convert({"metadata": {"name": "standard", "annotations": mark}}, StorageClass)


def _fit(**fields: Any) -> Facts:
    defaults: dict[str, Any] = {
        "server_version": "v1.34.2",
        "definitions": dict.fromkeys(_crds()),
        "gateway_versions": ["v1"],
        "gateway_classes": [],
        "kuberay": [],
        "rights": [
            Right(subject="you", verb="create", resource="namespaces", group="", is_allowed=True)
        ],
        "has_admission_policies": True,
        "storage_classes": [_class(default=True)],
    }
    return Facts(namespace="raybus", **{**defaults, **fields})


def test_a_cluster_that_is_fit(golden: Golden) -> None:
    found = prerequisites.check_before_installation(_fit())
    assert {each.state for each in found} == {OK}
    golden.check("cli/doctor-pre.txt", text_of(cli.draw(found)))


@cases(
    ("facts", "name", "state", "text"),
    {
        "KubeRay's CRDs": (
            lambda: _fit(definitions=_crds()),
            "CRD rayservices.ray.io",
            OK,
            "installed, with all fields",
        ),
        "no admission policies": (
            lambda: _fit(has_admission_policies=False),
            "admission policies",
            WARNING,
            "is not served",
        ),
        "no default class": (
            lambda: _fit(storage_classes=[_class(default=False)]),
            "storage class",
            WARNING,
            "none of standard is the default",
        ),
        "no class": (lambda: _fit(storage_classes=[]), "storage class", WARNING, "there is none"),
        "KubeRay runs": (
            lambda: _fit(kuberay=[Watching("ray-system/kuberay-operator")]),
            "KubeRay",
            WARNING,
            "runs in ray-system/kuberay-operator",
        ),
        "a right is missing": (
            lambda: _fit(
                rights=[
                    Right(
                        subject="you",
                        verb="create",
                        resource="clusterroles",
                        group="",
                        is_allowed=False,
                    )
                ]
            ),
            "your rights",
            FAILED,
            "lacking: create clusterroles",
        ),
        "no rights": (
            lambda: Facts(namespace="raybus"),
            "storage class",
            UNKNOWN,
            "you may not read",
        ),
        "no list": (
            lambda: Facts(namespace="raybus"),
            "admission policies",
            UNKNOWN,
            "does not list",
        ),
    },
)
def test_each_finding_has_its_state(
    facts: Callable[[], Facts], name: str, state: CheckState, text: str
) -> None:
    found = next(
        each for each in prerequisites.check_before_installation(facts()) if each.name == name
    )
    assert found.state is state
    assert text in found.text
    assert bool(found.remedy) == (found.hint is not None) == (state in {WARNING, FAILED})


def test_the_rights_to_install_are_those_for_every_kind_of_the_overlay() -> None:
    files = [file for folder in INSTALLED for file in (DEPLOY / folder).rglob("*.yaml")]
    documents = [
        each for file in files for each in manifests.parse(file.read_text()) if "kind" in each
    ]
    kinds = {(each["apiVersion"].rpartition("/")[0], each["kind"].lower()) for each in documents}
    plurals = {
        (group, f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s") for group, kind in kinds
    }
    plurals = {(group, name.replace("classs", "classes")) for group, name in plurals}
    ours = {*survey.RIGHTS_TO_INSTALL, *survey.RIGHTS_TO_INSTALL_INSIDE}
    assert ours == {
        each
        for each in plurals
        if each[0] != "kustomize.config.k8s.io" and each[1] != "configurations"
    }
