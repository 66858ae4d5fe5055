"""The last writer of the rules of a route, from the managed fields of the API server."""

import msgspec
import pytest

from common.api.opaque import Json
from common.kube import answers


def entry(manager: str, at: str, *fields: str) -> Json:
    return {"manager": manager, "time": at, "fieldsV1": {"f:spec": {each: {} for each in fields}}}


OURS = entry("raybus-traffic-manager", "2026-01-01T00:09:00Z", "f:rules")


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        (
            [OURS, entry("argocd-controller", "2026-01-01T00:01:00Z", "f:rules")],
            "argocd-controller",
        ),
        (
            [
                entry("new", "2026-01-01T00:02:00Z", "f:rules"),
                entry("old", "2026-01-01T00:01:00Z", "f:rules"),
            ],
            "new",
        ),
        ([entry("gateway", "2026-01-01T00:02:00Z", "f:parentRefs"), OURS], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_last_writer_of_the_rules_but_ourselves(entries: list[Json], found: str) -> None:
    assert (
        answers.find_rules_writer(msgspec.json.encode({"metadata": {"managedFields": entries}}))
        == found
    )
