"""The rights that doctor asks for are those that raybus is given, or it would call every installation broken."""

from pathlib import Path
from typing import cast

import pytest
import yaml

from common.api.opaque import Json
from raybus_cli.doctor import survey

ROLES = Path(__file__).parents[4] / "deploy" / "rights" / "roles"


@pytest.mark.parametrize(("service", "verb", "group", "resource"), survey.OF_SERVICES)
def test_what_is_asked_for_is_granted(service: str, verb: str, group: str, resource: str) -> None:
    documents: list[Json] = [*yaml.safe_load_all((ROLES / f"{service.replace('-', '_')}.yaml").read_text())]
    rules: list[Json] = [rule for each in documents for rule in cast("list[Json]", each.get("rules") or [])]
    assert any(group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"] for rule in rules)
