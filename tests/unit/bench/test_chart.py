"""Pictures of benchmarks, and the profiles that flame graphs are drawn from."""

import re
from xml.etree import ElementTree

import pytest

from bench import chart, flames
from bench.chart import Bar

SPACE = "{http://www.w3.org/2000/svg}"


def boxes(picture: str) -> dict[str, tuple[float, float, float]]:
    """Return across, down and width of each rectangle, by the text that it shows."""
    found: dict[str, tuple[float, float, float]] = {}
    for each in ElementTree.fromstring(picture).iter(f"{SPACE}rect"):  # noqa: S314  (our own text)
        if (title := each.find(f"{SPACE}title")) is not None and title.text:
            found[title.text] = tuple(float(each.attrib[name]) for name in ("x", "y", "width"))  # pyright: ignore[reportArgumentType]  (three)
    return found


def test_the_parts_of_a_bar_stand_side_by_side_and_bars_share_a_scale() -> None:
    found = boxes(
        chart.bars([Bar("a", {"x": 1.0, "y": 2.0}), Bar("b", {"y": 6.0})], title="t", unit="s")
    )
    x, y, longest = found["x: 1.0 s"], found["y: 2.0 s"], found["y: 6.0 s"]
    assert y[0] == pytest.approx(x[0] + x[2], abs=0.2)
    assert (y[2], longest[2]) == pytest.approx((2 * x[2], 6 * x[2]), abs=0.4)
    assert x[1] == y[1] < longest[1]


def test_a_callee_lies_below_its_caller_as_wide_as_its_samples() -> None:
    stacks = {
        ("all", "a"): 2.0,
        ("all", "a", "b"): 1.0,
        ("all", "a", "c<d"): 1.0,
        ("all", "e"): 4.0,
    }
    found = boxes(chart.flames(stacks, title="t"))
    assert list(found) == [
        "a: 50.0%",
        "b: 12.5%",
        "c<d: 12.5%",
        "e: 50.0%",
    ]  # what all share is left out
    a, b, c, e = found.values()
    assert a[2] == e[2] == 4 * b[2] == 4 * c[2]
    assert (b[0], c[0], e[0]) == pytest.approx((a[0], b[0] + b[2], a[0] + a[2]), abs=0.2)
    assert a[1] == e[1] < b[1] == c[1]


def test_a_frame_too_narrow_to_be_seen_is_left_out() -> None:
    assert list(boxes(chart.flames({("a",): 1e6, ("b",): 1.0}, title="t"))) == ["a: 100.0%"]


def test_a_profile_of_py_spy_is_read_by_function_and_file() -> None:
    raw = "<module> (watcher/__main__.py:9);run (common/runtime/process.py:42) 3\n"
    raw += "<module> (watcher/__main__.py:9);run (common/runtime/process.py:43) 2\n"
    assert flames.parse_py_spy(raw) == {
        ("<module> watcher/__main__.py", "run runtime/process.py"): 5
    }


def test_a_profile_of_perf_is_read_from_its_outermost_frame() -> None:
    script = "\t  4f1 runtime.futex\n\t  4f2 github.com/nats-io/nats-server/v2/server.(*client).readLoop\n\n\t 4f1 x\n\n"
    assert flames.parse_perf(script) == {
        ("server.(*client).readLoop", "runtime.futex"): 1,
        ("x",): 1,
    }


def test_a_picture_is_text_that_a_browser_reads() -> None:
    picture = chart.bars([Bar("<&", {"<&": 1.0})], title="<&", unit="s")
    assert re.findall("&lt;&amp;", picture)
    assert ElementTree.fromstring(picture).tag == f"{SPACE}svg"  # noqa: S314  (our own text)


def test_the_rest_of_a_deep_stack_is_left_out() -> None:
    deep = tuple(f"f{depth}" for depth in range(60))
    assert len(boxes(chart.flames({deep: 1.0, ("other",): 1.0}, title="t"))) == chart.DEEPEST + 1


def test_a_sampler_that_may_not_trace_ends_the_run_with_what_it_printed() -> None:
    refused = ["/bin/sh", "-c", "echo Permission denied >&2; echo Try again >&2; exit 1"]
    with (
        pytest.raises(SystemExit, match=r"sh took no samples: Permission denied$"),
        flames.sampling(refused) as sampler,
    ):
        sampler.wait()
