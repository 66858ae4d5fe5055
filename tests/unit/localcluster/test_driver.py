"""The driver `auto`: kind needs both its program and a Docker engine that answers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster import driver
from localcluster.driver import DriverName


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Return a function that installs a program, which ends with an exit code."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name: str, code: int) -> None:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)

    return put


@pytest.mark.parametrize(
    ("programs", "chosen"),
    [
        pytest.param({"kind": 0, "docker": 0}, DriverName.KIND, id="both"),
        pytest.param({"docker": 0}, DriverName.BUILT, id="no kind"),
        pytest.param({"kind": 0}, DriverName.BUILT, id="no docker"),
        pytest.param({"kind": 0, "docker": 1}, DriverName.BUILT, id="no engine"),
    ],
)
async def test_kind_is_chosen_if_it_can_run(
    install: Callable[[str, int], None], programs: dict[str, int], chosen: DriverName
) -> None:
    for name, code in programs.items():
        install(name, code)
    assert await driver.choose() is chosen
