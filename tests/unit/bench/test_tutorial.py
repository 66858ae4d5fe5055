"""What a run of the tutorial without any cache counts, and what it judges."""

import subprocess
import sys
import time

from bench import tutorial
from bench.tutorial import Measured


def _measured(first_answer: float | None, *, exit_code: int | None = None) -> Measured:
    return Measured(
        commit="abc",
        cores=2,
        machine="x86_64",
        first_answer_seconds=first_answer,
        processor_seconds=600.0,
        load=[1.0, 3.5],
        packages_there=["runc"],
        exit_code=exit_code,
        phases=[],
    )


def _judged(found: Measured) -> tuple[str, bool | None]:
    (goal,) = tutorial.goals(found)
    return goal.value, goal.is_reached


def test_an_answer_in_time_misses_nothing_and_a_late_one_does() -> None:
    assert _judged(_measured(719.0)) == ("11 min 59 s", True)
    assert _judged(_measured(719.0, exit_code=0)) == ("11 min 59 s", True)
    assert _judged(_measured(721.0)) == ("12 min 01 s", False)
    assert _judged(_measured(719.0, exit_code=1)) == ("11 min 59 s, and a command failed", False)
    assert _judged(_measured(None)) == ("none", False)


def test_the_summary_names_the_least_time_that_the_processor_time_allows() -> None:
    first, least, load = tutorial.summary(_measured(500.0))
    assert first == "first answer of a model after 8 min 20 s"
    assert "600 s of processor time for it: no less than 5 min 00 s on 2 cores" in least
    assert "1.0 to 3.5" in load


def test_the_processor_time_counts_children_that_ended_and_those_that_run() -> None:
    # The kernel counts in ticks of 10 ms and rounds down, so the two children show a little less than 0.6 s.
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(2 * {{}})'"
    with subprocess.Popen(["bash", "-c", f"{burn.format(0)}; {burn.format(1)} & wait"]) as shell:
        try:
            deadline = time.monotonic() + 20
            while tutorial.processor_seconds(shell.pid) < 0.4 and time.monotonic() < deadline:
                time.sleep(0.05)
            counted = tutorial.processor_seconds(shell.pid)
        finally:
            shell.kill()
    assert 0.4 <= counted < 20
    assert tutorial.processor_seconds(2**30) == 0.0


def test_a_new_user_has_no_cache_of_ours_but_reaches_the_network() -> None:
    network = {"GOPROXY": "https://a", "https_proxy": "http://b", "PIP_INDEX_URL": "https://c"}
    caches = dict.fromkeys(
        (
            "GOCACHE",
            "UV_CACHE_DIR",
            "PIP_CACHE_DIR",
            "XDG_CACHE_HOME",
            "KUBEBUILDER_ASSETS",
            "GOPATH",
        ),
        "/d",
    )
    assert tutorial.inherited({"PATH": "/bin", **network, **caches}) == {"PATH": "/bin", **network}
