"""What each refusal of the API server means for us."""

import msgspec
import pytest

from common import errors
from common.kube.answers import is_gone, make_error

WEBHOOK = 'Internal error occurred: failed calling webhook "policy.example.org": context deadline exceeded'


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        pytest.param(403, "exceeded quota", errors.Forbidden, id="a quota"),
        pytest.param(404, "not found", errors.NotFound, id="gone"),
        pytest.param(409, "modified", errors.Conflict, id="an old version"),
        pytest.param(422, "Invalid value", errors.Rejected, id="an invalid object"),
        pytest.param(429, "storage is (re)initializing", errors.Throttled, id="too many requests"),
        pytest.param(
            500, "etcdserver: leader changed", errors.Unavailable, id="a store without leader"
        ),
        pytest.param(
            500, "etcdserver: request is too large", errors.Rejected, id="too large for the store"
        ),
        pytest.param(500, WEBHOOK, errors.Retryable, id="a webhook that does not answer"),
        pytest.param(503, "unavailable", errors.Unavailable, id="an API server in trouble"),
    ],
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
    gone = make_error(
        404, b'{"message": "rayclusters.ray.io \\"c\\" not found", "reason": "NotFound"}'
    )
    starting = make_error(404, b"404 page not found\n")
    assert isinstance(gone, errors.NotFound)
    assert isinstance(starting, errors.NotFound)
    assert (is_gone(gone, "c"), is_gone(gone, "other"), is_gone(starting, "c")) == (
        True,
        False,
        False,
    )


@pytest.mark.parametrize("code", [401, 403])
@pytest.mark.parametrize(
    ("body", "is_foreign", "kind"),
    [
        pytest.param(
            b"Forbidden: Invalid authentication token",
            True,
            errors.Unauthenticated,
            id="a dashboard",
        ),
        pytest.param(
            b'{"kind":"Status","message":"no services/proxy"}',
            True,
            errors.Forbidden,
            id="the proxy's right",
        ),
        pytest.param(b"Unauthorized", False, errors.Forbidden, id="the API server itself"),
    ],
)
def test_the_server_behind_the_proxy_and_the_proxy_refuse_different_things(
    code: int, body: bytes, is_foreign: bool, kind: type[errors.RaybusError]
) -> None:
    if code == 401 and kind is errors.Forbidden:
        kind = errors.Unauthorized
    assert type(make_error(code, body, is_foreign=is_foreign)) is kind
