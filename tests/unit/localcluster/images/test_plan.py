"""The images that are built, their order, and the inputs that make a build necessary."""

import pytest

from localcluster.errors import MisuseError
from localcluster.images import dockerfile, plan
from localcluster.images.dockerfile import Copy, Stage
from support.tables import cases

_TEXT = """
FROM scratch AS base
COPY base.txt /
FROM scratch AS tools
COPY tools.txt /
FROM base AS one
LABEL raybus.image="one"
COPY --from=tools /tools.txt /
FROM base AS two
LABEL raybus.image="two"
"""


def _stages(text: str = _TEXT) -> tuple[Stage, ...]:
    return dockerfile.parse(text)


def _keys(text: str = _TEXT, **contents: str) -> dict[str, str]:
    def digest(step: Copy) -> str:
        return contents.get(step.sources[0].removesuffix(".txt"), "")

    return plan.compute_keys(_stages(text), digest)


@cases(
    ("target", "present", "order"),
    {
        "nothing is there": ("one", set[str](), ("scratch", "base", "tools", "one")),
        "what it does not need is not built": ("two", set[str](), ("scratch", "base", "two")),
        "tools are not needed once they did their work": ("one", {"scratch", "base", "one"}, ()),
        "a layer below was lost": ("one", {"scratch", "one"}, ("base",)),
    },
)
def test_only_missing_layers_are_built(
    target: str, present: set[str], order: tuple[str, ...]
) -> None:
    by_name = {stage.name: stage for stage in _stages()}

    assert plan.to_build([by_name[target]], by_name, present) == order


def test_another_digest_or_snapshot_of_the_base_makes_everything_anew() -> None:
    text = "FROM debian:bookworm-slim@sha256:{} AS one\n"
    before = _keys(text.format("1"))

    assert before["one"] != _keys(text.format("2"))["one"]
    assert (
        before["one"]
        != plan.compute_keys(
            _stages(text.format("1")), lambda _: "", "http://m.test/20261101T000000Z"
        )["one"]
    )


@pytest.mark.parametrize(
    ("changed", "new"),
    [
        pytest.param({"base": "x"}, {"base", "one", "two"}, id="a copied file"),
        pytest.param({"tools": "x"}, {"tools", "one"}, id="a file of a stage that is copied from"),
    ],
)
def test_a_change_reaches_what_rests_on_it(changed: dict[str, str], new: set[str]) -> None:
    before, after = _keys(), _keys(**changed)

    assert {name for name in before if before[name] != after[name]} == new


def test_a_comment_changes_no_key() -> None:
    assert _keys() == _keys("# a comment\n" + _TEXT)


def test_all_images_are_meant_when_none_is_named() -> None:
    assert [stage.name for stage in plan.choose(_stages(), [])] == ["one", "two"]


def test_an_unknown_target_is_answered_with_the_known_ones() -> None:
    with pytest.raises(MisuseError, match="no image target base; there are: one, two"):
        plan.choose(_stages(), ["one", "base"])
