"""The meaning of a refusal of JetStream for the request: retry, read again, or give up."""

from common import errors
from common.bus import refusals
from common.bus.refusals import ApiFailure
from support.tables import cases


@cases(
    ("failure", "meaning"),
    {
        "somebody else has written": (ApiFailure(code=400, err_code=10071), errors.Conflict),
        "no stream": (ApiFailure(code=404, err_code=10059), errors.NotFound),
        "too many consumers for now": (ApiFailure(code=400, err_code=10026), errors.Unavailable),
        "no leader": (ApiFailure(code=503, err_code=10008), errors.Unavailable),
        "too large": (ApiFailure(code=400, err_code=10054), errors.Rejected),
        "a request that is wrong": (ApiFailure(code=400, err_code=10025), errors.Rejected),
        "the server's own trouble": (ApiFailure(code=500), errors.Unavailable),
    },
)
def test_what_a_refusal_means(failure: ApiFailure, meaning: type[errors.RaybusError]) -> None:
    assert type(refusals.make_error("CONSUMER.CREATE.S", failure)) is meaning
