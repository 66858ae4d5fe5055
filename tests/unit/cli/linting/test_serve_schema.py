"""What Serve refuses in a Serve config is an error with its field; what some version of it accepts is at most advice."""

import time
from typing import Any, Final

import pytest
import yaml

from raybus_cli.linting import serve_schema
from raybus_cli.manifests import format_path
from support.builders.ray_service import a_serve_config

APP: dict[str, Any] = {"name": "app", "import_path": "app:main", "route_prefix": "/"}
DEPLOYMENT: dict[str, Any] = {"name": "Model"}
NAMELESS: dict[str, Any] = {}
LIMIT: Final = 5.0
"""Maximum seconds of processor time: far above a linear check, far below a quadratic one (50 s)."""


def _of(config: object) -> list[str]:
    return [
        f"{level}: {format_path(place)}: {why}"
        for level, place, why in serve_schema.check_config(yaml.safe_dump(config))
    ]


def _app(**fields: object) -> dict[str, Any]:
    return {"applications": [{**APP, **fields}]}


def _deployment(**fields: object) -> dict[str, Any]:
    return _app(deployments=[{**DEPLOYMENT, **fields}])


AT, IN = "applications[0]", "applications[0].deployments[0]"


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, "applications: Required value"),
        ({"applications": {}}, "applications: Invalid value: a mapping: must be a list"),
        ({"applications": ["app:main"]}, f"{AT}: Invalid value: 'app:main': must be a mapping"),
        ({"applications": [{"name": "app"}]}, f"{AT}.import_path: Required value"),
        (
            _app(import_path="main"),
            f"{AT}.import_path: Invalid value: 'main': must have the form module:name",
        ),
        (_app(import_path="a:b:c"), "must have the form module:name or module.name"),
        (_app(import_path=":main"), "must not start or end with a separator"),
        (_app(name=""), f"{AT}.name: Required value"),
        (_app(args="x"), f"{AT}.args: Invalid value: 'x': must be a mapping"),
        (_app(name=["app"]), f"{AT}.name: Invalid value: a list: must be a text"),
        (_app(deployments=[NAMELESS]), f"{IN}.name: Required value"),
        (_deployment(num_replicas=0), f"{IN}.num_replicas: Invalid value: 0: must be at least 1"),
        (_deployment(num_replicas="many"), "must be a whole number or auto"),
        (
            _deployment(num_replicas=2, autoscaling_config={}),
            f"{IN}.num_replicas: Forbidden: autoscaling_config is set",
        ),
        (
            _deployment(max_ongoing_requests=0),
            f"{IN}.max_ongoing_requests: Invalid value: 0: must be more than 0",
        ),
        (_deployment(max_ongoing_requests="many"), "'many': must be a whole number"),
        (_deployment(max_queued_requests=0), "must be at least 1, or -1 for no limit"),
        (_deployment(health_check_period_s=0), "must be more than 0"),
        (
            _deployment(ray_actor_options={"num_gpus": -1}),
            f"{IN}.ray_actor_options.num_gpus: Invalid value: -1",
        ),
        (_deployment(max_replicas_per_node=1, placement_group_bundles=[{"CPU": 1}]), "Forbidden"),
        (
            {**_app(), "proxy_location": "Each"},
            "proxy_location: Unsupported value: 'Each'; supported: Disabled",
        ),
        (
            {"applications": [APP, {**APP, "route_prefix": "/b"}]},
            "applications[1].name: Duplicate value: 'app'",
        ),
        (
            {"applications": [APP, {**APP, "name": "b"}]},
            "applications[1].route_prefix: Duplicate value: '/'",
        ),
        (
            {"applications": [APP, {"name": "b", "import_path": "b:main"}]},
            "applications[1].route_prefix: Duplicate value: '/', the default; set route_prefix",
        ),
    ],
)
def test_what_serve_refuses_is_an_error_with_its_field(config: object, found: str) -> None:
    (only,) = _of(config)
    assert only.startswith("error: ")
    assert found in only


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (
            {**_app(), "http_option": {}},
            "http_option: Unknown field, which Serve ignores; did you mean http_options?",
        ),
        (
            _app(route_prefixes="/"),
            f"{AT}.route_prefixes: Unknown field, which Serve ignores; did you mean route_prefix?",
        ),
        (
            _deployment(num_replica=2),
            f"{IN}.num_replica: Unknown field, which Serve ignores; did you mean num_replicas?",
        ),
        (_deployment(ray_actor_options={"num_gpu": 1}), "did you mean num_gpus?"),
        (_app(port=8000), f"{AT}.port: Serve refuses it in an application; set http_options.port"),
        (_app(route_prefix="app"), f"{AT}.route_prefix: Invalid value: 'app': must start with /"),
        (_app(route_prefix="/app/"), "must not end with /"),
        (_app(route_prefix="/{app}"), "must not contain { or }"),
        (_deployment(max_ongoing_requests=1.5), "1.5: must be a whole number"),
        (_deployment(num_replicas=1.5), "1.5: must be a whole number or auto"),
        ({**_app(), "grpc_options": ""}, "grpc_options: Invalid value: '': must be a mapping"),
        (_app(name=7), f"{AT}.name: Invalid value: 7: must be a text"),
        ({**_app(), "target_capacity": 120}, "target_capacity: Invalid value: 120"),
    ],
)
def test_what_a_version_of_serve_may_accept_is_advice(config: object, found: str) -> None:
    (only,) = _of(config)
    assert only.startswith("advice: ")
    assert found in only


@pytest.mark.parametrize(
    "config",
    [
        yaml.safe_load(a_serve_config()),
        {"applications": []},
        _app(
            route_prefix=None,
            import_path="package.module.app",
            runtime_env={"pip": ["x"]},
            args={"a": 1},
        ),
        {
            "applications": [
                {**APP, "route_prefix": None},
                {**APP, "name": "b", "route_prefix": None},
            ]
        },
        _deployment(
            num_replicas="auto", autoscaling_config={"min_replicas": 0}, max_queued_requests=-1
        ),
        _deployment(
            num_replicas="3",
            max_ongoing_requests="8",
            user_config=None,
            graceful_shutdown_timeout_s="0.5",
        ),
        _deployment(
            num_replicas=None,
            autoscaling_config={"max_replicas": 2},
            ray_actor_options={"num_cpus": None},
        ),
        {
            **_app(),
            "proxy_location": "HeadOnly",
            "http_options": {"port": "8000"},
            "grpc_options": {"port": 9000},
        },
    ],
)
def test_what_serve_accepts_has_no_finding(config: object) -> None:
    assert _of(config) == []


def test_a_text_that_is_no_mapping_has_its_error_elsewhere() -> None:
    assert [
        *serve_schema.check_config("applications: ["),
        *serve_schema.check_config("- a"),
        *serve_schema.check_config(" "),
    ] == []


def test_a_password_is_not_shown() -> None:
    assert _of({**_app(), "http_options": {"ssl_keyfile_password": 1234}}) == [
        "advice: http_options.ssl_keyfile_password: Invalid value: must be a text"
    ]


def test_many_applications_are_checked_in_linear_time() -> None:
    config = "applications:\n" + "- {}\n" * 30_000
    began = time.process_time()
    fields = serve_schema.list_refused_fields(config)
    assert time.process_time() - began < LIMIT
    assert fields[0] == "applications[0].import_path: Required value"
    assert len(fields) == serve_schema.MAX_FIELDS


def test_a_long_value_is_shown_in_part() -> None:
    (field,) = serve_schema.list_refused_fields(f"applications: [{{import_path: {'x' * 9000}}}]")
    assert field.startswith("applications[0].import_path: Invalid value: 'xxx")
    assert len(field) == serve_schema.MAX_FIELD_LENGTH


def test_a_config_that_takes_seconds_is_not_checked_for_a_view() -> None:
    short = "applications: [{}]\n"
    assert (
        serve_schema.summarize_refused_fields(short)
        == serve_schema.list_refused_fields(short)
        != ()
    )
    assert serve_schema.summarize_refused_fields(short + "#" * serve_schema.MAX_SHOWN_CONFIG) == ()
