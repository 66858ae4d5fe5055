"""The rights that doctor asks for are those that raybus is given, and the namespaces of an installation."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from common.api.opaque import Json
from common.feature_gates import FeatureGate
from common.kube.resources import CONFIG_MAP, LEASE
from raybus_cli.doctor import prerequisites, survey
from raybus_cli.doctor.check import CheckState
from raybus_cli.doctor.facts import Facts, Workload
from support import manifests
from support.fakes.kube import FakeKube
from support.manifests import DEPLOY
from support.tables import cases

SOURCE = {"envFrom": [{"configMapRef": {"name": "environment"}}]}
ROLES = Path(__file__).parents[4] / "deploy" / "rights" / "roles"


@pytest.mark.parametrize(("subject", "verb", "group", "resource"), survey.RIGHTS_OF_MTLS)
def test_what_a_gate_asks_for_is_granted_by_its_component(
    subject: str, verb: str, group: str, resource: str
) -> None:
    granted = manifests.rights(
        manifests.read(DEPLOY / "components/mtls"), subject.split(maxsplit=1)[0]
    )
    assert verb in granted[f"cluster {group}/{resource}"]


@pytest.mark.parametrize(("service", "verb", "group", "resource"), survey.RIGHTS_OF_SERVICES)
def test_what_is_asked_for_is_granted(service: str, verb: str, group: str, resource: str) -> None:
    documents: list[Json] = [
        *yaml.safe_load_all((ROLES / f"{service.replace('-', '_')}.yaml").read_text())
    ]
    rules: list[Json] = [
        rule for each in documents for rule in cast("list[Json]", each.get("rules") or [])
    ]
    assert any(
        group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
        for rule in rules
    )


class Reviewing(FakeKube):
    """Answers reviews like an API server on which a Role in some namespaces grants everything."""

    def __init__(self, *granted: str) -> None:
        super().__init__()
        self._granted = granted
        self.users: set[str] = set()

    async def request(self, _method: str, path: str, /, **given: Any) -> bytes:
        assert path.startswith(survey.REVIEWS)
        spec = given["body"]["spec"]
        self.users.add(spec.get("user", "you"))
        allowed = spec["resourceAttributes"]["namespace"] in self._granted
        return msgspec.json.encode({"status": {"allowed": allowed}})


@pytest.mark.parametrize(
    ("granted", "watched", "lacking"),
    [
        pytest.param(["team-a", "team-b"], ["team-a", "team-b"], set[str](), id="in each"),
        pytest.param(["team-a"], ["team-a", "team-b"], {"team-b"}, id="in one of two"),
        pytest.param([""], [], set[str](), id="everywhere"),
        pytest.param(["team-a"], [], {""}, id="one, but all are watched"),
    ],
)
async def test_rights_are_asked_for_where_raybus_watches(
    granted: list[str], watched: list[str], lacking: set[str]
) -> None:
    kube = Reviewing(*granted)
    found = await survey.read_rights(
        kube, "ray-system", frozenset({FeatureGate.MTLS}), frozenset(watched)
    )
    assert {each.namespace for each in found if not each.is_allowed} == lacking
    assert {"you", "system:serviceaccount:ray-system:watcher"} <= kube.users
    checks = [*prerequisites.check_rights(Facts(namespace="ray-system", rights=found))]
    assert {each.state for each in checks} == {CheckState.FAILED if lacking else CheckState.OK}
    named = [each.text for each in checks if lacking - {""}]
    assert all("in team-b" in each and "in team-a" not in each for each in named)


def _a_deployment(name: str, container: Json) -> Workload:
    template = {"spec": {"containers": [{"name": name, **container}]}}
    body = {"metadata": {"name": name, "namespace": "raybus"}, "spec": {"template": template}}
    return msgspec.convert(body, Workload)


@cases(
    ("container", "data", "expected"),
    {
        "some": (
            SOURCE,
            {"RAYBUS_WATCH_NAMESPACES": "team-a, team-b"},
            frozenset({"team-a", "team-b"}),
        ),
        "all": (SOURCE, {"RAYBUS_WATCH_NAMESPACES": ""}, frozenset[str]()),
        "a ConfigMap that is not there": (SOURCE, None, frozenset[str]()),
        "its own variable": (
            {"env": [{"name": "RAYBUS_WATCH_NAMESPACES", "value": "a"}]},
            None,
            frozenset({"a"}),
        ),
    },
)
async def test_the_namespaces_of_an_installation(
    container: Json, data: dict[str, str] | None, expected: frozenset[str]
) -> None:
    kube = FakeKube()
    if data is not None:
        kube.put(
            CONFIG_MAP, {"metadata": {"name": "environment", "namespace": "raybus"}, "data": data}
        )
    assert await survey.watch_namespaces(kube, [_a_deployment("watcher", container)]) == expected
    assert await survey.watch_namespaces(kube, []) == frozenset()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"RAYBUS_FEATURE_GATES": "RayClusterMTLS=true"}, True),
        ({"RAYBUS_FEATURE_GATES": "AllAlpha=true"}, True),
        ({"RAYBUS_FEATURE_GATES": ""}, False),
        ({"RAYBUS_FEATURE_GATES": "Unknown=true"}, False),
        (None, False),
    ],
)
async def test_the_gates_of_an_installation(data: dict[str, str] | None, expected: bool) -> None:
    kube = FakeKube()
    if data is not None:
        metadata = {"name": "environment", "namespace": "raybus"}
        kube.put(CONFIG_MAP, {"metadata": metadata, "data": data})
    reconciler = _a_deployment("cluster-reconciler", SOURCE)
    assert (FeatureGate.MTLS in await survey.read_gates(kube, [reconciler])) is expected
    assert await survey.read_gates(kube, []) == frozenset()


def _a_lease(namespace: str, minute: int) -> Json:
    return {
        "metadata": {
            "name": f"raybus-traffic-manager-{minute}",
            "namespace": namespace,
            "labels": {"raybus.io/replica-of": "traffic-manager"},
        },
        "spec": {"renewTime": f"2026-01-01T00:{minute:02}:00.000000Z"},
    }


@cases(
    ("pods_in", "leases", "expected"),
    {
        "pods": ("raybus", [("raybus", 5), ("default", 9)], None),
        "containers or processes": ("", [("default", 5)], "default"),
        "the newest of two": ("", [("default", 5), ("team-a", 9)], "team-a"),
        "pods in another namespace than asked": ("ray-system", [("ray-system", 5)], None),
        "nothing": ("", [], None),
    },
)
async def test_replicas_outside_the_cluster_are_found_by_their_leases(
    pods_in: str, leases: list[tuple[str, int]], expected: str | None
) -> None:
    kube = FakeKube()
    for namespace, minute in leases:
        await kube.create(LEASE, namespace, _a_lease(namespace, minute))
    if pods_in:
        deployment = {"metadata": {"name": "traffic-manager", "namespace": pods_in}}
        await kube.create(survey.DEPLOYMENT, pods_in, deployment)
    assert await survey.find_outside_namespace(kube, "raybus") == expected


async def test_the_rights_of_services_outside_the_cluster_are_not_asked_for() -> None:
    kube = Reviewing("")
    found = await survey.read_rights(kube, "default", frozenset(), frozenset(), is_outside=True)
    assert {each.subject for each in found} == {"you"}
