"""The options of doctor: waiting, checks before an installation, data for programs, exit codes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from raybus_cli import main, session, waiting
from raybus_cli.doctor import checks, prerequisites, survey
from raybus_cli.doctor.check import Category, Check, CheckState, Hint, categorize


def _found(state: CheckState) -> list[Check]:
    return [
        *categorize(
            Category.SERVICES,
            Hint.SERVICES,
            Check(name="watcher", state=state, text="0 of 1 ready", remedy="see"),
        )
    ]


def _run(_place: Any, work: Callable[[Any], Coroutine[Any, Any, list[Check]]]) -> list[Check]:
    return asyncio.run(work(None))


async def _no_facts(*_: Any) -> None: ...


def _nowhere(*_: Any) -> None: ...


def _answers(*states: CheckState) -> Callable[..., list[Check]]:
    """Return a function that returns the states one after another and repeats the last one."""
    left = [*states]

    def answer(*_: Any, **__: Any) -> list[Check]:
        return _found(left.pop(0) if len(left) > 1 else left[0])

    return answer


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "select_access", _nowhere)
    monkeypatch.setattr(session, "run", _run)
    monkeypatch.setattr(survey, "read_installation", _no_facts)
    monkeypatch.setattr(survey, "read_prerequisites", _no_facts)
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.001)


def _doctor(*arguments: str) -> Any:
    return CliRunner().invoke(main.build("doctor"), ["doctor", *arguments])


@pytest.mark.parametrize(
    ("state", "code"),
    [(CheckState.OK, 0), (CheckState.WARNING, 0), (CheckState.UNKNOWN, 0), (CheckState.FAILED, 1)],
)
def test_only_a_failed_check_fails(
    monkeypatch: pytest.MonkeyPatch, state: CheckState, code: int
) -> None:
    monkeypatch.setattr(checks, "check_all", _answers(state))
    assert _doctor().exit_code == code


def test_checks_are_repeated_until_none_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "check_all", _answers(CheckState.FAILED, CheckState.FAILED, CheckState.OK)
    )
    done = _doctor("--wait", "1m", "-o", "json")
    assert done.exit_code == 0
    assert "1 of 1 checks fail: watcher" in done.stderr
    assert [each["state"] for each in msgspec.json.decode(done.stdout)] == ["ok"]


def test_a_wait_that_is_over_shows_the_last_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "check_all", _answers(CheckState.FAILED))
    done = _doctor("--wait", "0")
    assert (done.exit_code, "× watcher: 0 of 1 ready" in done.stdout) == (1, True)


def test_checks_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "check_before_installation", _answers(CheckState.FAILED))
    done = _doctor("--pre", "-o", "json")
    assert msgspec.json.decode(done.stdout) == [
        {
            "name": "watcher",
            "state": "failed",
            "text": "0 of 1 ready",
            "remedy": "see",
            "category": "Services",
            "hint": "docs/troubleshooting.md#no-reaction-at-all",
        }
    ]


def test_a_duration_that_is_none_is_a_misuse() -> None:
    done = _doctor("--wait", "soon")
    assert (done.exit_code, "is no duration" in done.stderr) == (2, True)
