"""Answers of Prometheus to a query."""

import msgspec

from common.upgrade.webhook import Answer


def scalar(text: str) -> Answer:
    """Return the answer of a query with a scalar as its result."""
    return _found("scalar", [1.0, text])


def vector(*texts: str) -> Answer:
    """Return the answer of a query with a vector as its result, with a series for each value."""
    return _found(
        "vector",
        [
            {"metric": {"pod": f"p-{number}"}, "value": [1.0, text]}
            for number, text in enumerate(texts)
        ],
    )


def refuses(error: str, *, status: int = 400) -> Answer:
    """Return the answer to a query that Prometheus refuses."""
    body = {"status": "error", "errorType": "bad_data", "error": error}
    return Answer(status=status, body=msgspec.json.encode(body))


def _found(kind: str, result: object) -> Answer:
    body = {"status": "success", "data": {"resultType": kind, "result": result}}
    return Answer(status=200, body=msgspec.json.encode(body))
