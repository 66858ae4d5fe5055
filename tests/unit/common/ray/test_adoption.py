"""The config that a cluster has, from its records and from Serve's reports (ADR 5)."""

import msgspec

from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.ray import revision
from common.ray.revision import OUTCOME, RecordedConfig, Revision, SendOutcome
from common.ray.serve_status import Application, ServeDetails
from support.tables import cases

SENT, ACCEPTED, REFUSED = SendOutcome


def app(version: str) -> Json:
    return {"name": "app", "import_path": f"{version}:app"}


def config(version: str) -> str:
    return msgspec.json.encode({"applications": [app(version)]}).decode()


def records(*outcomes: tuple[str, SendOutcome | None]) -> list[Revision]:
    """Return records newest first, as they are listed; the arguments are oldest first."""
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


@cases(
    ("held", "details", "has"),
    {
        "accepted: the record, whatever runs": (records(V1), runs("v9"), "v1"),
        "a record of the last release": (records(("v1", None)), runs("v1"), "v1"),
        "not carried out, or not yet": (records(V1, V2), runs("v1"), "v1"),
        "carried out, and the outcome not recorded": (records(V1, V2), runs("v2"), "v2"),
        "the dashboard does not answer: nobody knows": (records(V1, V2), None, None),
        "an old Ray does not report configs: nobody knows": (records(V1, V2), runs(None), None),
        "nothing runs: what was asked for last": (records(V1, V2), ServeDetails(), "v2"),
        "nothing runs and the last was refused": (
            records(V1, ("v2", REFUSED)),
            ServeDetails(),
            "v1",
        ),
        "refused": (records(V1, ("v2", REFUSED)), runs("v1"), "v1"),
        "refused, and taken before or after that": (records(V1, ("v2", REFUSED)), runs("v2"), "v2"),
        "refused, and the dashboard does not answer": (records(V1, ("v2", REFUSED)), None, "v1"),
        "two intents, the first carried out": (records(V1, V2, ("v3", SENT)), runs("v2"), "v2"),
        "the first config of a cluster": (records(V2), runs("v2"), "v2"),
        "the first one, and nobody answers": (records(V2), None, None),
        "the newest accepted one": (records(("v1", ACCEPTED), ("v2", ACCEPTED)), runs("v1"), "v2"),
        "no record and no answer": ([], None, None),
    },
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
