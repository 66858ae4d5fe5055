"""The candidate that the evidence of an upgrade refers to, by Serve's reports."""

from typing import Any

import msgspec
import pytest

from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.ray import serve_status
from common.ray.view import Reading, ServeView
from common.upgrade.candidate import candidate_of

CLUSTER = msgspec.convert({"metadata": {"name": "green", "uid": "u"}}, RayCluster)


def a_view(
    config: Json | None, status: str = "RUNNING", *, given: str | None = None, **other: Any
) -> ServeView:
    """Return a cluster whose application was deployed by a config."""
    app = {"status": status, "deployed_app_config": config}
    details = serve_status.decode(msgspec.json.encode({"applications": {"app": app, **other}}))
    return ServeView(cluster=CLUSTER, serve=Reading(details=details), given=given)


SILENT = ServeView(cluster=CLUSTER, serve=Reading(problem="no answer", failures=5))
V2, V3 = ({"import_path": "app:main", "args": {"model": each}} for each in ("v2", "v3"))


def config_of(view: ServeView, known: str | None = None) -> str | None:
    found = candidate_of(view, known)
    return None if found is None else found.config


def test_another_config_is_another_candidate_and_the_order_of_its_keys_is_none() -> None:
    assert config_of(a_view(V2)) == config_of(a_view(dict(reversed(V2.items()))))
    assert config_of(a_view(V2)) != config_of(a_view(V3))


def test_a_config_is_a_candidate_once_all_applications_run_with_it() -> None:
    known = config_of(a_view(V2))
    assert candidate_of(a_view(V3, "DEPLOYING"), known) is None
    assert candidate_of(a_view(V3, "UNHEALTHY"), known) is None
    assert config_of(a_view(V3), known) == config_of(a_view(V3))


def test_a_candidate_that_is_unhealthy_or_silent_is_the_same_one() -> None:
    known = config_of(a_view(V2))
    assert config_of(a_view(V2, "UNHEALTHY"), known) == known
    assert config_of(SILENT, known) == known
    assert candidate_of(SILENT) is None


def test_where_ray_reports_no_config_the_recorded_one_counts_too() -> None:
    first, second = (config_of(a_view(None, given=each)) for each in ("v2", "v3"))
    assert first != second
    assert config_of(a_view(V2, given="v2")) == config_of(a_view(V2, given="v2  # a comment"))


@pytest.mark.parametrize("status", ["DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED", "DELETING"])
@pytest.mark.parametrize("config", [None, V3], ids=["by code", "by a config"])
def test_an_application_outside_of_the_config_does_not_count(
    status: str, config: Json | None
) -> None:
    given = "applications:\n- name: app\n  import_path: app:main\n"
    alone = config_of(a_view(V2, given=given))
    stray: Json = {"status": status, "deployed_app_config": config}
    assert alone is not None
    for known in (None, alone):
        assert config_of(a_view(V2, given=given, stray=stray), known) == alone
