"""The config that Ray reports is recognized as the one that it was sent, whatever Ray makes of its
values; any other config is not.

The reports in `tests/golden/ray/reported_configs.json` are those of a real Ray 2.60.0 right after
each PUT.
"""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.api.opaque import Json
from common.ray import deployed_config
from common.ray.serve_config import parse
from common.ray.serve_status import Application, ServeDetails
from support.tables import cases

REPORTED: list[Json] = msgspec.json.decode(
    (Path(__file__).parents[3] / "golden" / "ray" / "reported_configs.json").read_bytes()
)


def text(config: Json) -> str:
    return msgspec.json.encode(config).decode()


def details(**apps: Json | None) -> ServeDetails:
    """Return an answer of Serve with these applications, each with the config that it reports."""
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
    assert deployed_config.differences(parse(text(case["sent"])), reported(case)) == []


def test_what_ray_reports_of_a_config_is_no_other_config() -> None:
    for sent, other in itertools.permutations(REPORTED, 2):
        names = frozenset({sent["name"], other["name"]})
        found = deployed_config.differences(parse(text(sent["sent"])), reported(other))
        assert found is not None, names
        assert (found == []) is _are_alike(sent, other), names


def _are_alike(sent: Json, other: Json) -> bool:
    """Return whether two captured configs are equal in the compared parts, that is without unknown
    keys, logging, capacity and proxy options.
    """

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


@cases(
    ("have", "where"),
    {
        "the same": ({"app": APP}, []),
        "path": ({"app": app(import_path="other:app")}, ["application app: import_path"]),
        "one option more": ({"app": app(args={})}, ["application app: args"]),
        "one application more": ({"app": APP, "two": APP}, ["application two"]),
        "none of its applications": ({}, ["application app"]),
        "another one is being deleted": ({"app": APP, "two": {}}, []),
        "it is being deleted itself": ({"app": {}}, ["application app"]),
        "an old Ray that does not report configs": ({"app": None}, None),
        "a value that Ray hides": (
            {"app": app(runtime_env={"env_vars": {"KEY": "<redacted>"}})},
            [],
        ),
        "the name of the option is reported, its value never": (
            {"app": app(runtime_env={"env_vars": {"KEY": "x"}})},
            ["application app: runtime_env"],
        ),
        "a deployment more": (
            {"app": app(deployments=[{"name": "Model"}])},
            ["application app: deployment Model"],
        ),
    },
)
def test_differences(have: dict[str, Json | None], where: list[str] | None) -> None:
    assert (
        deployed_config.differences(parse(text({"applications": [APP]})), details(**have)) == where
    )


def test_the_order_of_applications_and_deployments_does_not_count() -> None:
    one, two = {"name": "One", "num_replicas": 1}, {"name": "Two"}
    sent = text({"applications": [app(deployments=[one, two]), app(name="b")]})
    assert (
        deployed_config.differences(
            parse(sent), details(b=app(name="b"), app=app(deployments=[two, one]))
        )
        == []
    )


def test_a_config_that_cannot_be_read_is_compared_with_nothing() -> None:
    assert deployed_config.differences(parse("applications: ["), details(app=APP)) is None
    assert deployed_config.differences(parse("applications: [1]"), details(app=APP)) is None


ODD = [
    {"deployments": {"a": 1}},
    {"deployments": [1, None, "x", {"name": None}]},
    {"deployments": [{"ray_actor_options": "x"}]},
]


@pytest.mark.parametrize("odd", [*ODD, {"deployments": 7}, {"args": 10**400}], ids=str)
def test_values_that_break_rays_schema_are_compared_all_the_same(odd: Json) -> None:
    """Neither the user's config nor the answer of a dashboard has to fit Ray's schema."""
    assert (
        deployed_config.differences(parse(text({"applications": [app(**odd)]})), details(app=APP))
        is not None
    )
    assert (
        deployed_config.differences(parse(text({"applications": [APP]})), details(app=app(**odd)))
        is not None
    )


def test_an_application_that_code_deployed_hides_no_difference_of_the_others() -> None:
    sent = text({"applications": [{"name": "app", "import_path": "a:b"}]})
    other: Json = {"name": "app", "import_path": "c:d"}
    assert deployed_config.differences(parse(sent), details(app=other, mine=None)) == [
        "application app: import_path"
    ]
    same: Json = {"name": "app", "import_path": "a:b"}
    assert deployed_config.differences(parse(sent), details(app=same, mine=None)) == []
    assert deployed_config.differences(parse(sent), details(app=None, other=same)) == [
        "application app",
        "application other",
    ]
    assert deployed_config.differences(parse(sent), details(app=None)) is None, "an old Ray"


def test_the_config_that_serve_runs_with_leaves_out_what_code_deployed() -> None:
    app: Json = {"name": "app", "import_path": "a:b"}
    found = deployed_config.reported(details(app=app, mine=None))
    assert found is not None
    assert msgspec.json.decode(found) == {"applications": [app]}
    assert deployed_config.reported(details(mine=None)) is None
