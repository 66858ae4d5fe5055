"""What a refusal of JetStream means for the request: retry, read anew, or never."""

import pytest

from common import errors
from common.bus import refusals
from common.bus.refusals import ApiFailure


@pytest.mark.parametrize(
    ("failure", "meaning"),
    [
        pytest.param(
            ApiFailure(code=400, err_code=10071), errors.Conflict, id="somebody else has written"
        ),
        pytest.param(ApiFailure(code=404, err_code=10059), errors.NotFound, id="no stream"),
        pytest.param(
            ApiFailure(code=400, err_code=10026),
            errors.Unavailable,
            id="too many consumers for now",
        ),
        pytest.param(ApiFailure(code=503, err_code=10008), errors.Unavailable, id="no leader"),
        pytest.param(ApiFailure(code=400, err_code=10054), errors.Rejected, id="too large"),
        pytest.param(
            ApiFailure(code=400, err_code=10025), errors.Rejected, id="a request that is wrong"
        ),
        pytest.param(ApiFailure(code=500), errors.Unavailable, id="the server's own trouble"),
    ],
)
def test_what_a_refusal_means(failure: ApiFailure, meaning: type[errors.RaybusError]) -> None:
    assert type(refusals.make_error("CONSUMER.CREATE.S", failure)) is meaning
