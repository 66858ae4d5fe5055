"""The arguments of `raybus set image` that are accepted, and the reasons why others are refused."""

import pytest

from common import errors
from raybus_cli.changing import edits
from raybus_cli.changing.edits import Assignment
from support.tables import cases

DIGEST = "sha256:" + "0af" * 21 + "0"


@cases(
    ("given", "group", "container", "image"),
    {
        "a name": ("head=ray", "head", "", "ray"),
        "all groups": ("*=rayproject/ray:2.53.0-py311", "*", "", "rayproject/ray:2.53.0-py311"),
        "a container": (
            "gpu/sidecar=h.example:5000/a/b:v1",
            "gpu",
            "sidecar",
            "h.example:5000/a/b:v1",
        ),
        "a digest": (f"gpu=localhost/a__b@{DIGEST}", "gpu", "", f"localhost/a__b@{DIGEST}"),
        "an IPv6 host": (
            f"gpu=[fd00::1]:5000/a:1@{DIGEST}",
            "gpu",
            "",
            f"[fd00::1]:5000/a:1@{DIGEST}",
        ),
        "capitals in the host": (
            "gpu=Registry.example/a:LATEST",
            "gpu",
            "",
            "Registry.example/a:LATEST",
        ),
    },
)
def test_an_assignment_is_read(given: str, group: str, container: str, image: str) -> None:
    assert edits.parse(given) == Assignment(group, container, image)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("head", "is not GROUP=IMAGE", id="no image"),
        pytest.param("=ray", "is not GROUP=IMAGE", id="no group"),
        pytest.param("head/=ray", "is not GROUP=IMAGE", id="no container"),
        pytest.param("head=", "the name has 1 to 255 characters", id="an empty image"),
        pytest.param("head=rayproject/Ray", "lower-case letters", id="capitals in the path"),
        pytest.param("head=ray:", "a tag has", id="an empty tag"),
        pytest.param("head=ray:a b", "a tag has", id="a blank"),
        pytest.param("head=https://h/ray", "lower-case letters", id="a URL"),
        pytest.param("head=ray@sha256:12", "a digest is sha256:", id="a short digest"),
        pytest.param("head=ray\n", "lower-case letters", id="a line end"),
        pytest.param("head=" + "a" * 256, "1 to 255", id="too long"),
    ],
)
def test_what_is_no_image_is_refused_with_the_reason(given: str, message: str) -> None:
    with pytest.raises(errors.InvalidSpec, match=message):
        edits.parse(given)
