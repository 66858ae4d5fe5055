"""Polls the readiness of the services and reports changes: the first time all are ready, and each time one is not."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import httpx

POLL_SECONDS: Final = 0.2
CALM_POLL_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 5.0
"""The longest silence before all are ready for the first time."""

Report = Callable[[str], None]


class Readiness:
    """The last answers of the services; None means ready."""

    def __init__(self, ports: Mapping[str, int], report: Report) -> None:
        self._ports = ports
        self._report = report
        self._problems: dict[str, str | None] = dict.fromkeys(ports, "not started yet")
        self._reported_at = 0.0

    async def watch(self, on_ready: Callable[[], None]) -> None:
        """Poll until cancelled; call `on_ready` once, when all are ready for the first time."""
        was_ready = False
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as http:
            while True:
                answers = {name: await _ask(http, port) for name, port in self._ports.items()}
                self._report_changes(answers, was_ready=was_ready)
                if not was_ready and not any(answers.values()):
                    was_ready = True
                    on_ready()
                await asyncio.sleep(CALM_POLL_SECONDS if was_ready else POLL_SECONDS)

    def _report_changes(self, answers: Mapping[str, str | None], *, was_ready: bool) -> None:
        now = asyncio.get_running_loop().time()
        names = [name for name in answers if answers[name] != self._problems[name]]
        if not names and not was_ready and now - self._reported_at >= SILENCE_SECONDS:
            names = [name for name, problem in answers.items() if problem is not None]
        for name in names:
            problem = answers[name]
            self._report(f"{name} is ready" if problem is None else f"{name} is not ready: {problem}")
        if names:
            self._reported_at = now
        self._problems = dict(answers)


async def _ask(http: httpx.AsyncClient, port: int) -> str | None:
    try:
        answer = await http.get(f"http://127.0.0.1:{port}/readyz")
    except httpx.HTTPError:
        return "starting"
    return None if answer.status_code == 200 else answer.text.strip()
