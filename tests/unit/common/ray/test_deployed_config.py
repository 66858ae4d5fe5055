"""What Ray reports of a config that it was sent is that config, whatever Ray makes of its values; another one is not.

The reports in `tests/golden/ray/reported_configs.json` are those of a real Ray 2.60.0 right after each PUT.
"""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.api.opaque import Json
from common.ray import deployed_config
from common.ray.serve_status import Application, ServeDetails
from common.runtime.cache import ROOM
from support.memory import measured

REPORTED: list[Json] = msgspec.json.decode(
    (Path(__file__).parents[3] / "golden" / "ray" / "reported_configs.json").read_bytes()
)


def text(config: Json) -> str:
    return msgspec.json.encode(config).decode()


def details(**apps: Json | None) -> ServeDetails:
    """Return Serve with these applications, each with the config that it reports."""
    return ServeDetails(
        applications={
            name: Application(
                status="DELETING" if app == {} else "RUNNING", deployed_app_config=app or None
            )
            for name, app in apps.items()
        }
    )


def reported(case: Json) -> ServeDetails:
    return msgspec.convert({"applications": case["reported"]}, ServeDetails)


@pytest.mark.parametrize("case", REPORTED, ids=lambda case: case["name"])
def test_what_ray_reports_of_a_config_is_that_config(case: Json) -> None:
    assert deployed_config.differences(text(case["sent"]), reported(case)) == []


def test_what_ray_reports_of_a_config_is_no_other_config() -> None:
    for sent, other in itertools.permutations(REPORTED, 2):
        names = frozenset({sent["name"], other["name"]})
        found = deployed_config.differences(text(sent["sent"]), reported(other))
        assert found is not None, names
        assert (found == []) is _are_alike(sent, other), names


def _are_alike(sent: Json, other: Json) -> bool:
    """Return whether two captured configs are equal in what is compared: not unknown keys, logging, capacity and proxy options."""

    def bare(case: Json) -> Any:
        apps = [
            {key: each for key, each in app.items() if key not in {"logging_config", "note"}}
            for app in case["sent"]["applications"]
        ]
        for app in apps:
            app["deployments"] = [
                {key: each for key, each in one.items() if key not in {"logging_config", "comment"}}
                for one in app.get("deployments", [])
            ]
        return apps

    return bare(sent) == bare(other)


APP = {"name": "app", "import_path": "model:app", "runtime_env": {"env_vars": {"KEY": "secret"}}}


def app(**fields: Any) -> Json:
    return {**APP, **fields}


@pytest.mark.parametrize(
    ("have", "where"),
    [
        pytest.param({"app": APP}, [], id="the same"),
        pytest.param(
            {"app": app(import_path="other:app")}, ["application app: import_path"], id="path"
        ),
        pytest.param({"app": app(args={})}, ["application app: args"], id="one option more"),
        pytest.param({"app": APP, "two": APP}, ["application two"], id="one application more"),
        pytest.param({}, ["application app"], id="none of its applications"),
        pytest.param({"app": APP, "two": {}}, [], id="another one is being deleted"),
        pytest.param({"app": {}}, ["application app"], id="it is being deleted itself"),
        pytest.param({"app": None}, None, id="an old Ray that does not report configs"),
        pytest.param(
            {"app": app(runtime_env={"env_vars": {"KEY": "<redacted>"}})},
            [],
            id="a value that Ray hides",
        ),
        pytest.param(
            {"app": app(runtime_env={"env_vars": {"KEY": "x"}})},
            ["application app: runtime_env"],
            id="the name of the option is reported, its value never",
        ),
        pytest.param(
            {"app": app(deployments=[{"name": "Model"}])},
            ["application app: deployment Model"],
            id="a deployment more",
        ),
    ],
)
def test_differences(have: dict[str, Json | None], where: list[str] | None) -> None:
    assert deployed_config.differences(text({"applications": [APP]}), details(**have)) == where


def test_the_order_of_applications_and_deployments_does_not_count() -> None:
    one, two = {"name": "One", "num_replicas": 1}, {"name": "Two"}
    sent = text({"applications": [app(deployments=[one, two]), app(name="b")]})
    assert (
        deployed_config.differences(sent, details(b=app(name="b"), app=app(deployments=[two, one])))
        == []
    )


def test_a_config_that_cannot_be_read_is_compared_with_nothing() -> None:
    assert deployed_config.differences("applications: [", details(app=APP)) is None
    assert deployed_config.differences("applications: [1]", details(app=APP)) is None


ODD = [
    {"deployments": {"a": 1}},
    {"deployments": [1, None, "x", {"name": None}]},
    {"deployments": [{"ray_actor_options": "x"}]},
]


@pytest.mark.parametrize("odd", [*ODD, {"deployments": 7}, {"args": 10**400}], ids=str)
def test_values_that_break_rays_schema_are_compared_all_the_same(odd: Json) -> None:
    """Neither the user's config nor what a dashboard answers is held to Ray's schema."""
    assert (
        deployed_config.differences(text({"applications": [app(**odd)]}), details(app=APP))
        is not None
    )
    assert (
        deployed_config.differences(text({"applications": [APP]}), details(app=app(**odd)))
        is not None
    )


def test_what_is_kept_of_large_configs_is_bounded() -> None:
    """One after the other, as of a RayService that is edited again and again."""
    with measured() as kept:
        for number in range(120):
            sent = text({"applications": [app(args=f"{number}{'x' * 1_000_000}")]})
            assert deployed_config.differences(sent, details()) == ["application app"]
        assert kept() < 1.25 * ROOM


def test_an_application_that_code_deployed_hides_no_difference_of_the_others() -> None:
    sent = text({"applications": [{"name": "app", "import_path": "a:b"}]})
    other: Json = {"name": "app", "import_path": "c:d"}
    assert deployed_config.differences(sent, details(app=other, mine=None)) == [
        "application app: import_path"
    ]
    same: Json = {"name": "app", "import_path": "a:b"}
    assert deployed_config.differences(sent, details(app=same, mine=None)) == []
    assert deployed_config.differences(sent, details(app=None, other=same)) == [
        "application app",
        "application other",
    ]
    assert deployed_config.differences(sent, details(app=None)) is None, "an old Ray"


def test_the_config_that_serve_runs_with_leaves_out_what_code_deployed() -> None:
    app: Json = {"name": "app", "import_path": "a:b"}
    found = deployed_config.reported(details(app=app, mine=None))
    assert found is not None
    assert msgspec.json.decode(found) == {"applications": [app]}
    assert deployed_config.reported(details(mine=None)) is None
