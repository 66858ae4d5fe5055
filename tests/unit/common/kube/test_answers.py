"""The meaning of each refusal of the API server for raybus."""

import msgspec
import pytest

from common import errors
from common.kube.answers import MAX_FOREIGN_BODY, RefusalKind, classify, make_error
from support.tables import cases

WEBHOOK = 'Internal error occurred: failed calling webhook "policy.example.org": context deadline exceeded'


@cases(
    ("code", "text", "kind"),
    {
        "a quota": (403, "exceeded quota", errors.Forbidden),
        "gone": (404, "not found", errors.NotFound),
        "an old version": (409, "modified", errors.Conflict),
        "an invalid object": (422, "Invalid value", errors.Rejected),
        "too many requests": (429, "storage is (re)initializing", errors.Throttled),
        "a store without leader": (500, "etcdserver: leader changed", errors.Unavailable),
        "too large for the store": (500, "etcdserver: request is too large", errors.Rejected),
        "a webhook that does not answer": (500, WEBHOOK, errors.Retryable),
        "an API server in trouble": (503, "unavailable", errors.Unavailable),
    },
)
def test_what_an_answer_means(code: int, text: str, kind: type[errors.RaybusError]) -> None:
    found = make_error(code, msgspec.json.encode({"message": text, "reason": ""}))
    assert (type(found), str(found).startswith(text)) == (kind, True)


@pytest.mark.parametrize(
    ("causes", "kind"),
    [
        pytest.param([{"reason": "NamespaceTerminating"}], errors.NamespaceTerminating, id="ends"),
        pytest.param([{"reason": "FieldValueInvalid"}], errors.Forbidden, id="another cause"),
        pytest.param(None, errors.Forbidden, id="no causes"),
    ],
)
def test_a_namespace_that_is_being_deleted_is_no_fault_of_its_user(
    causes: object, kind: type[errors.RaybusError]
) -> None:
    text = "unable to create new content in namespace a because it is being terminated"
    status = {"message": text, "reason": "Forbidden", "details": {"causes": causes}}
    assert type(make_error(403, msgspec.json.encode(status))) is kind


def test_an_answer_of_bytes_that_are_no_text_keeps_the_meaning_of_its_code() -> None:
    found = make_error(503, b'{"message": "\xff"}')
    assert (type(found), "\ufffd" in str(found)) == (errors.Unavailable, True)


def test_a_missing_object_differs_from_a_kind_that_is_not_served_yet() -> None:
    details = {"name": "c", "group": "ray.io", "kind": "rayclusters"}
    status = {"message": 'rayclusters.ray.io "c" not found', "details": details}
    gone = make_error(404, msgspec.json.encode(status))
    starting = make_error(404, b"404 page not found\n")
    assert isinstance(gone, errors.NotFound)
    assert isinstance(starting, errors.NotFound)
    assert (gone.name, starting.name) == ("c", "")


def test_a_version_that_the_server_has_not_reached_is_told_by_its_cause() -> None:
    text = "Timeout: Too large resource version: 11, current: 3"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    status = {"message": text, "reason": "Timeout", "details": {"causes": [cause]}}
    assert type(make_error(504, msgspec.json.encode(status))) is errors.VersionAhead
    assert type(make_error(504, msgspec.json.encode({"message": text}))) is errors.Unavailable


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("etcdserver: request is too large", RefusalKind.TOO_LARGE),
        ('failed calling webhook "a.b": no endpoints', RefusalKind.WEBHOOK_SILENT),
        ('pods "a" is forbidden: exceeded quota: q, requested: pods=1', RefusalKind.QUOTA_EXCEEDED),
        ('pods "a" is forbidden: User "b" cannot create resource', RefusalKind.OTHER),
    ],
)
def test_a_refusal_without_a_code_of_its_own_is_told_by_its_text(
    text: str, refusal: RefusalKind
) -> None:
    assert classify(text) is refusal


@pytest.mark.parametrize("code", [401, 403])
@cases(
    ("body", "is_foreign", "kind"),
    {
        "a dashboard": (b"Forbidden: Invalid authentication token", True, errors.Unauthenticated),
        "the proxy's right": (
            b'{"kind":"Status","message":"no services/proxy"}',
            True,
            errors.Forbidden,
        ),
        "the API server itself": (b"Unauthorized", False, errors.Forbidden),
    },
)
def test_the_server_behind_the_proxy_and_the_proxy_refuse_different_things(
    code: int, body: bytes, is_foreign: bool, kind: type[errors.RaybusError]
) -> None:
    if code == 401 and kind is errors.Forbidden:
        kind = errors.Unauthorized
    assert type(make_error(code, body, is_foreign=is_foreign)) is kind


@pytest.mark.parametrize("size", [MAX_FOREIGN_BODY, 10**6])
def test_both_ends_of_a_foreign_answer_are_kept_and_no_more_than_the_limit(size: int) -> None:
    body = b"begin" + b"x" * (size - 8) + b"end"
    answer = make_error(500, body, is_foreign=True).answer
    assert answer is not None
    assert len(answer.body) == MAX_FOREIGN_BODY
    assert (answer.body[:5], answer.body[-3:]) == ("begin", "end")
