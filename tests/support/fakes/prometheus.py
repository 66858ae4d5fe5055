"""Answers of a Prometheus to a query."""

import msgspec

from common.upgrade.webhook import Answer


def scalar(text: str) -> Answer:
    """Answer a scalar."""
    return _found("scalar", [1.0, text])


def vector(*texts: str) -> Answer:
    """Answer a vector with a series for each value."""
    return _found(
        "vector",
        [
            {"metric": {"pod": f"p-{number}"}, "value": [1.0, text]}
            for number, text in enumerate(texts)
        ],
    )


def refuses(error: str, *, status: int = 400) -> Answer:
    """Answer an error."""
    body = {"status": "error", "errorType": "bad_data", "error": error}
    return Answer(status=status, body=msgspec.json.encode(body))


def _found(kind: str, result: object) -> Answer:
    body = {"status": "success", "data": {"resultType": kind, "result": result}}
    return Answer(status=200, body=msgspec.json.encode(body))
