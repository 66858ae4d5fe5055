"""A wait ends with the first read that has nothing pending, or at its limit."""

import pytest
import typer

from common import errors
from raybus_cli import waiting


class _Reads:
    """Reads that return the answers one after another: an error is raised, and the last answer
    repeats.
    """

    def __init__(self, *answers: str | Exception) -> None:
        self.left = list(answers)

    async def __call__(self) -> str:
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.001)


async def test_each_change_is_reported_once_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reads = _Reads("two", "two", "one", errors.Unavailable("no answer"), "")
    assert await waiting.poll_until(reads, str, limit=60) == ""
    shown = capsys.readouterr()
    assert shown.out == ""
    assert [line.split("  ")[-1] for line in shown.err.splitlines()] == [
        "two",
        "one",
        "no answer; is it up, and is the --context right?",
    ]


async def test_the_last_read_is_returned_at_the_limit() -> None:
    assert await waiting.poll_until(_Reads("pending"), str, limit=0.01) == "pending"
    with pytest.raises(errors.Unavailable):
        await waiting.poll_until(_Reads(errors.Unavailable("no answer")), str, limit=0.01)


async def test_a_limit_of_zero_reads_once() -> None:
    reads = _Reads("first", "second")
    assert await waiting.poll_until(reads, str, limit=0) == "first"


@pytest.mark.parametrize(("given", "length"), [("90s", 90), ("10m", 600), ("5", 5), ("0", 0)])
def test_a_duration_is_read(given: str, length: float) -> None:
    assert waiting.parse_seconds(given) == length


@pytest.mark.parametrize("given", ["soon", "-5s", "10 m", ""])
def test_another_text_is_a_misuse(given: str) -> None:
    with pytest.raises(typer.BadParameter, match="write for example 10m"):
        waiting.parse_seconds(given)
