"""Packages are installed one run after the other, and after the process that holds apt's locks.
apt-get is a script here.
"""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster.errors import ClusterError
from localcluster.images import debian
from localcluster.progress import Progress

AptGet = Callable[[str], None]


@pytest.fixture
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AptGet:
    """Return the search path with a script as apt-get, which logs to the file `$log`."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(debian, "_RETRY_SECONDS", 0.01)

    def write(script: str) -> None:
        program = tmp_path / "bin" / "apt-get"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nbin={tmp_path}/bin log={tmp_path}/log\n{script}\n")
        program.chmod(0o755)

    return write


def install() -> None:
    debian.install({"tool-deb": ("no-such-tool",)}, Progress.silent())


def test_two_runs_at_once_install_one_after_the_other(tmp_path: Path, apt_get: AptGet) -> None:
    apt_get(
        'echo begin >>$log; sleep 0.1; echo end >>$log; printf "#!/bin/sh" >$bin/no-such-tool; chmod +x $bin/no-such-tool'
    )
    runs = [threading.Thread(target=install) for _ in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert (tmp_path / "log").read_text().split() == [
        "begin",
        "end",
    ]  # the second finds what the first installed


def test_it_waits_for_the_holder_of_the_locks(tmp_path: Path, apt_get: AptGet) -> None:
    held = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"
    apt_get(f'echo "$@" >>$log; [ $(wc -l <$log) -ge 3 ] || {{ echo "{held}" >&2; exit 100; }}')
    install()
    asked = (tmp_path / "log").read_text().splitlines()
    assert len(asked) == 3
    assert set(asked) == {
        "-q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends tool-deb"
    }


def test_package_lists_that_are_old_are_updated_once(tmp_path: Path, apt_get: AptGet) -> None:
    apt_get(
        'echo "$@" >>$log; case "$*" in *update*) touch $bin/updated;; esac; [ -e $bin/updated ] || exit 100'
    )
    install()
    assert [line.split()[3] for line in (tmp_path / "log").read_text().splitlines()] == [
        "install",
        "update",
        "install",
    ]


def test_what_cannot_be_installed_is_one_line(apt_get: AptGet) -> None:
    apt_get('echo "E: Unable to locate package tool-deb" >&2; exit 100')
    began = time.monotonic()
    with pytest.raises(
        ClusterError,
        match=r"^apt-get could not install tool-deb: E: Unable to locate package tool-deb$",
    ):
        install()
    assert time.monotonic() - began < 5


def test_what_is_there_needs_no_apt_get(monkeypatch: pytest.MonkeyPatch) -> None:
    def which(name: str) -> str | None:
        return None if name == "apt-get" else f"/bin/{name}"

    monkeypatch.setattr(shutil, "which", which)
    debian.install({"shell": ("sh",)}, Progress.silent())
    with pytest.raises(
        ClusterError, match=r"^install other with this system's package manager, then try again$"
    ):
        debian.install({"other": ("/no/such/file",)}, Progress.silent())
