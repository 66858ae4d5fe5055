"""The figures as people and programs read them: a table, a JSON file, a picture."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench import plot
from bench.fairness import Fairness
from bench.plot import Line
from bench.scale_up import Figures

Rows = Sequence[tuple[str, Callable[[Figures], str]]]

_ROWS: Rows = (
    ("wall time until all are ready", lambda found: f"{found.wall:.2f} s"),
    ("a cluster from its creation to ready, p50", lambda found: f"{found.latency_p50:.2f} s"),
    ("… p99", lambda found: f"{found.latency_p99:.2f} s"),
    ("API requests per cluster, Events included", lambda found: f"{found.requests_per_cluster:.2f}"),
    ("… of which status writes", lambda found: f"{found.status_writes_per_cluster:.2f}"),
    ("CPU of all its processes", lambda found: f"{found.cpu_seconds:.2f} s"),
    ("… per cluster", lambda found: f"{found.cpu_seconds / found.clusters * 1000:.1f} ms"),
    ("peak PSS of all its processes", lambda found: f"{found.peak_pss:.0f} MiB"),
    ("growth of all its processes per pod", lambda found: f"{found.kib_per_pod:.1f} KiB"),
    (
        "a pod in a reconciler's cache",
        lambda found: f"{found.kib_per_cached_pod:.1f} KiB" if found.kib_per_cached_pod else "",
    ),
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All that one call has measured."""

    floor: Figures
    contenders: list[Figures]
    fairness: list[Fairness]


def show(result: Result) -> None:
    """Print the figures."""
    console = Console(width=120)
    if result.contenders:
        console.print(_scale_up(result))
        _ratios(result, console)
    for found in result.contenders:
        console.print(f"{found.name} asked: {_counts(found.requests)}", soft_wrap=True, highlight=False)
        if found.idle is not None:
            writes = _counts(found.idle.writes) or "none"
            told = f"{found.name}, {found.idle.minutes:g} idle minutes: writes {writes}, {found.idle.cpu_seconds:.1f} s CPU"
            console.print(told, highlight=False)
    for fair in result.fairness:
        console.print(_fairness(fair), highlight=False)


def write(result: Result, folder: Path) -> list[Path]:
    """Write the JSON file and the picture; return where."""
    folder.mkdir(parents=True, exist_ok=True)
    figures, picture = folder / "clusters.json", folder / "clusters.svg"
    figures.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    lines = [Line(found.name, found.ready_at) for found in (result.floor, *result.contenders)]
    picture.write_text(plot.draw(lines, title=f"{result.floor.clusters} RayClusters to ready"))
    return [figures, picture]


def _scale_up(result: Result) -> Table:
    title = f"{result.floor.clusters} RayClusters of 4 pods; floor: the same pods and Services, posted by a script"
    table = Table("", "floor", *(found.name for found in result.contenders), title=title, title_justify="left")
    for number, (label, value) in enumerate(_ROWS):
        own = value(result.floor) if number == 0 else ""
        table.add_row(label, own, *(value(found) for found in result.contenders))
    return table


def _ratios(result: Result, console: Console) -> None:
    first, *others = result.contenders
    told = [f"{first.name} / floor {first.wall / result.floor.wall:.2f}"]
    told += [
        f"{first.name} / {other.name}: wall {first.wall / other.wall:.2f}, "
        f"CPU {first.cpu_seconds / other.cpu_seconds:.2f}, "
        f"requests {first.requests_per_cluster / other.requests_per_cluster:.2f}"
        for other in others
    ]
    console.print("; ".join(told), highlight=False)


def _fairness(found: Fairness) -> str:
    def waits(values: list[float]) -> str:
        return f"{' '.join(f'{wait:.2f}' for wait in values) or 'none'}"

    return (
        f"{found.name}, new 1-worker clusters during a scale-up of {found.wall:.1f} s had their head pod after at most "
        f"{found.worst:.2f} s\n  same namespace:  {waits(found.same_namespace)}\n"
        f"  other namespace: {waits(found.other_namespace)}"
    )


def _counts(by_kind: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in by_kind.items())
