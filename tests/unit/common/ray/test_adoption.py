"""What a cluster has, from its records and from what Serve reports (ADR 5)."""

import msgspec
import pytest

from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.ray import revision
from common.ray.revision import OUTCOME, Outcome, RecordedConfig, Revision
from common.ray.serve_status import Application, ServeDetails

SENT, ACCEPTED, REFUSED = Outcome


def app(version: str) -> Json:
    return {"name": "app", "import_path": f"{version}:app"}


def config(version: str) -> str:
    return msgspec.json.encode({"applications": [app(version)]}).decode()


def records(*outcomes: tuple[str, Outcome | None]) -> list[Revision]:
    """Return records, oldest given first, as they are listed: newest first."""
    found = [
        Revision(
            metadata=ObjectMeta(
                name=str(number), annotations={} if outcome is None else {OUTCOME: outcome}
            ),
            data=RecordedConfig(serve_config=config(version), spec_hash=version),
            revision=number,
        )
        for number, (version, outcome) in enumerate(outcomes, start=1)
    ]
    return found[::-1]


def runs(version: str | None) -> ServeDetails:
    reported = None if version is None else app(version)
    return ServeDetails(
        applications={"app": Application(status="RUNNING", deployed_app_config=reported)}
    )


V1, V2 = ("v1", ACCEPTED), ("v2", SENT)


@pytest.mark.parametrize(
    ("held", "details", "has"),
    [
        pytest.param(records(V1), runs("v9"), "v1", id="accepted: the record, whatever runs"),
        pytest.param(records(("v1", None)), runs("v1"), "v1", id="a record of the last release"),
        pytest.param(records(V1, V2), runs("v1"), "v1", id="not carried out, or not yet"),
        pytest.param(
            records(V1, V2), runs("v2"), "v2", id="carried out, and the outcome not recorded"
        ),
        pytest.param(records(V1, V2), None, None, id="the dashboard does not answer: nobody knows"),
        pytest.param(
            records(V1, V2), runs(None), None, id="an old Ray does not report configs: nobody knows"
        ),
        pytest.param(
            records(V1, V2), ServeDetails(), "v2", id="nothing runs: what was asked for last"
        ),
        pytest.param(
            records(V1, ("v2", REFUSED)),
            ServeDetails(),
            "v1",
            id="nothing runs and the last was refused",
        ),
        pytest.param(records(V1, ("v2", REFUSED)), runs("v1"), "v1", id="refused"),
        pytest.param(
            records(V1, ("v2", REFUSED)),
            runs("v2"),
            "v2",
            id="refused, and taken before or after that",
        ),
        pytest.param(
            records(V1, ("v2", REFUSED)),
            None,
            "v1",
            id="refused, and the dashboard does not answer",
        ),
        pytest.param(
            records(V1, V2, ("v3", SENT)), runs("v2"), "v2", id="two intents, the first carried out"
        ),
        pytest.param(records(V2), runs("v2"), "v2", id="the first config of a cluster"),
        pytest.param(records(V2), None, None, id="the first one, and nobody answers"),
        pytest.param(
            records(("v1", ACCEPTED), ("v2", ACCEPTED)),
            runs("v1"),
            "v2",
            id="the newest accepted one",
        ),
        pytest.param([], None, None, id="no record and no answer"),
    ],
)
def test_what_a_cluster_has(
    held: list[Revision], details: ServeDetails | None, has: str | None
) -> None:
    found = revision.current(held, details)
    assert (found.serve_config if found is not None else None) == (
        config(has) if has is not None else None
    )


def test_what_runs_decides_when_it_is_neither_the_intent_nor_the_one_before() -> None:
    found = revision.current(records(V1, V2), runs("v9"))
    assert found is not None
    assert (msgspec.json.decode(found.serve_config)["applications"], found.spec_hash) == (
        [app("v9")],
        "v1",
    )


def test_a_cluster_without_a_record_has_what_serve_reports() -> None:
    found = revision.current([], runs("v1"))
    assert found is not None
    assert msgspec.json.decode(found.serve_config) == {"applications": [app("v1")]}


def test_a_config_with_hidden_values_is_not_taken_over() -> None:
    secret = {**app("v1"), "runtime_env": {"env_vars": {"KEY": "<redacted>"}}}
    details = ServeDetails(applications={"app": Application(deployed_app_config=secret)})
    assert revision.current([], details) is None
