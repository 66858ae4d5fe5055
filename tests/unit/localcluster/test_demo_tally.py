"""The requests that the demo counts, and the figures that it shows."""

from localcluster.demo import tally
from localcluster.demo.tally import LoadAnswer, UpgradeWindow


def an_answer(
    at: float, *, seconds: float = 0.01, status: int | None = 200, **more: object
) -> LoadAnswer:
    version = "1" if status == 200 else None
    fields = {"at": at, "seconds": seconds, "status": status, "version": version, **more}
    return LoadAnswer(**fields)  # type: ignore[arg-type]


def test_a_request_belongs_to_the_phase_in_which_it_started() -> None:
    answers = [an_answer(1), an_answer(11), an_answer(21), an_answer(22)]
    figures = tally.count(answers, UpgradeWindow(began=10, ended=20))
    assert [(each.phase, each.requests) for each in figures.phases] == [
        ("before", 1),
        ("during", 1),
        ("after", 2),
    ]


def test_whatever_is_not_a_200_failed() -> None:
    answers = [
        an_answer(1),
        an_answer(2, status=503),
        an_answer(3, status=None, error="TimeoutError: "),
    ]
    figures = tally.count(answers, UpgradeWindow())
    assert (figures.requests, figures.failed) == (3, 2)
    assert figures.by_answer == {"TimeoutError": 1, "status 503": 1, "version 1, status 200": 1}


def test_retries_are_counted_and_are_no_failures() -> None:
    figures = tally.count([an_answer(1, retries=1), an_answer(2)], UpgradeWindow())
    assert (figures.retried, figures.failed) == (1, 0)


def test_slow_requests_do_not_count_in_the_latencies() -> None:
    answers = [an_answer(float(i), seconds=i / 1000) for i in range(1, 101)] + [
        an_answer(5, seconds=8.0, think=8.0)
    ]
    before = tally.count(answers, UpgradeWindow()).phases[0]
    assert (before.p50_ms, before.p99_ms) == (50.0, 99.0)


def test_a_line_that_was_cut_off_is_passed_over() -> None:
    lines = ['{"at": 1, "seconds": 0.5, "status": 200, "version": "1"}', '{"at": 2, "sec']
    assert len(tally.read(lines)) == 1


def test_the_share_is_of_recent_answers() -> None:
    answers = [an_answer(1), an_answer(11), an_answer(12, version="2"), an_answer(13, version="2")]
    assert tally.compute_shares(answers, since=10) == {"1": 1 / 3, "2": 2 / 3}
    assert tally.compute_shares(answers, since=100) == {}
