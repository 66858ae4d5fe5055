"""The figures that a run of the tutorial without any cache counts, and the goals that it checks."""

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


def test_a_new_user_has_no_cache_of_ours_but_reaches_the_network() -> None:
    network = {"GOPROXY": "https://a", "https_proxy": "http://b", "PIP_INDEX_URL": "https://c"}
    caches = dict.fromkeys(
        (
            *("GOCACHE", "UV_CACHE_DIR", "PIP_CACHE_DIR", "XDG_CACHE_HOME", "KUBEBUILDER_ASSETS"),
            "GOPATH",
        ),
        "/d",
    )
    assert tutorial.inherited({"PATH": "/bin", **network, **caches}) == {"PATH": "/bin", **network}
