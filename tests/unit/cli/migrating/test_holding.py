"""Sending a config again changes nothing only if Serve already has all of it."""

from typing import Any

import msgspec
import pytest

from common.api.opaque import Json
from common.ray.revision import RecordedConfig
from common.ray.serve_status import ServeDetails
from common.ray.submit import Submit
from raybus_cli.migrating import findings
from support.builders.ray_cluster import a_ray_cluster
from support.builders.ray_service import a_serve_config
from support.tables import cases

APP: Json = {
    "name": "app",
    "import_path": "app:main",
    "route_prefix": "/",
    "runtime_env": {"env_vars": {"MESSAGE": "v1"}},
    "deployments": [],
}
CLUSTER = a_ray_cluster()
GIVEN = RecordedConfig(serve_config=a_serve_config(), spec_hash="", upgrade_strategy={})


def details(*apps: Json, capacity: float | None = None) -> ServeDetails:
    found: Any = {
        "applications": {
            each["name"]: {"status": "RUNNING", "deployed_app_config": each} for each in apps
        },
        "target_capacity": capacity,
    }
    return msgspec.convert(found, ServeDetails)


@cases(
    ("held", "expected"),
    {
        "the same, with defaults": (details(APP), True),
        "another value": (details({**APP, "runtime_env": {"env_vars": {"MESSAGE": "v2"}}}), False),
        "an application more": (details(APP, {**APP, "name": "more"}), False),
        "nothing": (details(), False),
        "no answer": (None, False),
    },
)
def test_what_serve_has(held: ServeDetails | None, expected: bool) -> None:
    assert findings.serves(held, Submit(cluster=CLUSTER, given=GIVEN)) is expected


@pytest.mark.parametrize(
    ("has", "sent", "expected"), [(None, 100, True), (100.0, 100, True), (40.0, 100, False)]
)
def test_the_capacity_counts(has: float | None, sent: int, expected: bool) -> None:
    action = Submit(cluster=CLUSTER, given=GIVEN, capacity=sent)
    assert findings.serves(details(APP, capacity=has), action) is expected
