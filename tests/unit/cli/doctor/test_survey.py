"""The rights that doctor asks for are those that raybus is given, and the namespaces of an installation."""

from pathlib import Path
from typing import cast

import msgspec
import pytest
import yaml

from common.api.opaque import Json
from common.kube.resources import CONFIG_MAP
from raybus_cli.doctor import survey
from raybus_cli.doctor.facts import Workload
from support.fakes.kube import FakeKube

SOURCE = {"envFrom": [{"configMapRef": {"name": "environment"}}]}
ROLES = Path(__file__).parents[4] / "deploy" / "rights" / "roles"


@pytest.mark.parametrize(("service", "verb", "group", "resource"), survey.OF_SERVICES)
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


def _a_watcher(container: Json) -> Workload:
    template = {"spec": {"containers": [{"name": "watcher", **container}]}}
    body = {"metadata": {"name": "watcher", "namespace": "raybus"}, "spec": {"template": template}}
    return msgspec.convert(body, Workload)


@pytest.mark.parametrize(
    ("container", "data", "expected"),
    [
        pytest.param(
            SOURCE,
            {"RAYBUS_WATCH_NAMESPACES": "team-a, team-b"},
            frozenset({"team-a", "team-b"}),
            id="some",
        ),
        pytest.param(SOURCE, {"RAYBUS_WATCH_NAMESPACES": ""}, frozenset[str](), id="all"),
        pytest.param(SOURCE, None, frozenset[str](), id="a ConfigMap that is not there"),
        pytest.param(
            {"env": [{"name": "RAYBUS_WATCH_NAMESPACES", "value": "a"}]},
            None,
            frozenset({"a"}),
            id="its own variable",
        ),
    ],
)
async def test_the_namespaces_of_an_installation(
    container: Json, data: dict[str, str] | None, expected: frozenset[str]
) -> None:
    kube = FakeKube()
    if data is not None:
        kube.put(
            CONFIG_MAP, {"metadata": {"name": "environment", "namespace": "raybus"}, "data": data}
        )
    assert await survey.watch_namespaces(kube, [_a_watcher(container)]) == expected
    assert await survey.watch_namespaces(kube, []) == frozenset()
