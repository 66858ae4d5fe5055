"""What the demo counts, and what it shows."""

from localcluster.demo import tally
from localcluster.demo.tally import Answer, Window


def an_answer(
    at: float, *, seconds: float = 0.01, status: int | None = 200, **more: object
) -> Answer:
    version = "1" if status == 200 else None
    return Answer(**{"at": at, "seconds": seconds, "status": status, "version": version, **more})  # type: ignore[arg-type]


def test_a_request_belongs_to_the_phase_in_which_it_started() -> None:
    answers = [an_answer(1), an_answer(11), an_answer(21), an_answer(22)]
    figures = tally.count(answers, Window(began=10, ended=20))
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
    figures = tally.count(answers, Window())
    assert (figures.requests, figures.failed) == (3, 2)
    assert figures.by_answer == {"TimeoutError": 1, "status 503": 1, "version 1, status 200": 1}


def test_retries_are_counted_and_are_no_failures() -> None:
    figures = tally.count([an_answer(1, retries=1), an_answer(2)], Window())
    assert (figures.retried, figures.failed) == (1, 0)


def test_slow_requests_do_not_count_in_the_latencies() -> None:
    answers = [an_answer(float(i), seconds=i / 1000) for i in range(1, 101)] + [
        an_answer(5, seconds=8.0, think=8.0)
    ]
    before = tally.count(answers, Window()).phases[0]
    assert (before.p50_ms, before.p99_ms) == (50.0, 99.0)


def test_a_line_that_was_cut_off_is_passed_over() -> None:
    lines = ['{"at": 1, "seconds": 0.5, "status": 200, "version": "1"}', '{"at": 2, "sec']
    assert len(tally.read(lines)) == 1


def test_the_share_is_of_recent_answers() -> None:
    answers = [an_answer(1), an_answer(11), an_answer(12, version="2"), an_answer(13, version="2")]
    assert tally.share(answers, since=10) == {"1": 1 / 3, "2": 2 / 3}
    assert tally.share(answers, since=100) == {}
