"""The goal of `make bench-start`."""

from bench.start import LARGEST_CPU, SERVICES, Started, missed


def a_round(**cpu: float) -> dict[str, Started]:
    return {each: Started(cpu=cpu.get(each, LARGEST_CPU), modules=1, held={}) for each in SERVICES}


def test_the_median_of_a_service_decides() -> None:
    rounds = [a_round(watcher=0.5), a_round(watcher=0.5, traffic_manager=9.0), a_round()]
    assert missed(rounds) == ["start of watcher in 0.3 s of CPU: 0.50 s"]
