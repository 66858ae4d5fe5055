"""The goal of `make bench-start`."""

from bench.start import MAX_CPU, SERVICES, StartedProcess, goals


def a_round(**cpu: float) -> dict[str, StartedProcess]:
    return {
        each: StartedProcess(cpu=cpu.get(each, MAX_CPU), modules=1, held={}) for each in SERVICES
    }


def test_the_median_of_a_service_decides() -> None:
    rounds = [a_round(watcher=0.5), a_round(watcher=0.5, traffic_manager=9.0), a_round()]
    judged = {goal.figure: (goal.value, goal.is_reached) for goal in goals(rounds)}
    assert judged["CPU of the start of watcher"] == ("0.50 s", False)
    assert [name for name, (_, is_reached) in judged.items() if not is_reached] == [
        "CPU of the start of watcher"
    ]
