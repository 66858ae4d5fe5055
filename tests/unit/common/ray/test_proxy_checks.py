"""Health checks of a proxy, and which of them count as failed."""

from typing import Any, Final

import pytest

from common import clock, errors
from common.ray import dashboard
from common.ray.serve_api import ServeApi
from common.runtime.cache import Cache
from support.dashboard_calls import a_pod
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube


class Proxy:
    """A proxy with predetermined answers."""

    def __init__(self, *answers: errors.RaybusError | None) -> None:
        self._answers = list(answers)

    async def request(self, *_: object, **__: object) -> bytes:
        if (problem := self._answers.pop(0)) is not None:
            raise problem
        return b"success"


LATE: Final = errors.Unanswered("no answer", is_late=True)
SILENT: Final = errors.Unanswered("no answer")
WRONG: Final = errors.Unavailable("answered 500")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([None, SILENT, WRONG], (True, False, False)),
        ([None, LATE, LATE], (True,)),
        ([LATE, WRONG, LATE], (False,)),
    ],
)
async def test_a_check_for_which_this_process_was_too_late_does_not_count(
    answers: list[errors.RaybusError | None], expected: tuple[bool, ...]
) -> None:
    proxy: Any = Proxy(*answers)
    serve = ServeApi(proxy, FakeKube(), Cache(), FakeClock())
    found: tuple[bool, ...] = ()
    for _ in answers:
        found = await serve.check_proxy(a_pod("ns"), max_age=0)
    assert found == expected


@pytest.mark.parametrize(("lasts", "is_late"), [(2.0, False), (2.4, False), (9.0, True)])
async def test_a_call_that_ends_long_after_its_deadline_was_late_itself(
    lasts: float, *, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([0.0, lasts])
    monkeypatch.setattr(clock, "steady", lambda: next(moments))
    with pytest.raises(errors.Unanswered) as raised:
        async with dashboard._deadline(2.0, "the pod"):  # pyright: ignore[reportPrivateUsage]
            raise TimeoutError
    assert raised.value.is_late == is_late
