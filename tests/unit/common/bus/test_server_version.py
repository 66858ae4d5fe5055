"""A NATS server that is too old is refused with its version and the remedy."""

import pytest

from common import errors
from common.bus.nats import check_version
from support.tables import cases


@cases(
    "version",
    {
        "the oldest": (2, 11, 0),
        "a newer one": (2, 15, 3),
        "the next major version": (3, 0, 0),
        "one that names no version": None,
    },
)
def test_a_server_is_accepted(version: tuple[int, int, int] | None) -> None:
    check_version(version)


def test_an_older_server_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        errors.Unavailable,
        match=r"^NATS 2\.10\.27 is older than 2\.11\.0, .* update the NATS server$",
    ):
        check_version((2, 10, 27))
