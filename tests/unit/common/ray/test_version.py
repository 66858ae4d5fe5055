"""Versions as Kubernetes' generic parser reads them."""

import pytest

from common.ray import cluster_traits as traits
from common.ray.cluster_traits import Version, VersionError
from support.tables import cases


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param("2.52.1", (2, 52, 1), id="three numbers"),
        pytest.param("2.52.0", (2, 52), id="a missing number counts as 0"),
        pytest.param(" v2.52rc1", (2, 52), id="blanks, v and the rest are passed over"),
        pytest.param("2.07", (2, 7), id="only the first number has no leading zero"),
        pytest.param("0.8.7", (0, 8, 7), id="zero itself is fine"),
        pytest.param("2.52.0.dev1", (2, 52), id="a suffix after a dot"),
    ],
)
def test_parse(text: str, version: Version) -> None:
    assert traits.parse_version(text) == version


@cases(
    ("text", "message"),
    {
        "no number": ("nightly", 'could not parse "nightly" as version'),
        "nothing": ("", 'could not parse "" as version'),
        "a single number": ("2", 'illegal version string "2"'),
        "a leading zero": ("02.1", 'illegal zero-prefixed version component "02" in "02.1"'),
    },
)
def test_parse_fails(text: str, message: str) -> None:
    with pytest.raises(VersionError) as problem:
        traits.parse_version(text)
    assert str(problem.value) == message


@pytest.mark.parametrize(
    ("text", "is_at_least"),
    [
        ("2.53.0", True),
        ("2.53", True),
        ("3.0", True),
        ("2.52.9", False),
        ("", False),
        ("latest", False),
    ],
)
def test_is_at_least(text: str, *, is_at_least: bool) -> None:
    assert traits.is_version_at_least(text, (2, 53, 0)) == is_at_least
