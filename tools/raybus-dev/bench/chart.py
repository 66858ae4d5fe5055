"""Draws charts as SVG text: objects ready over time, stacked bars, and flame graphs."""

import math
import zlib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

import msgspec

WIDTH: Final = 720
HEIGHT: Final = 400
MARGIN: Final = 50
COLOURS: Final = ("#999999", "#0060c0", "#d06000", "#208020")
FILLS: Final = (
    *(
        "#4e79a7",
        "#f28e2b",
        "#59a14f",
        "#e15759",
        "#76b7b2",
        "#edc948",
        "#b07aa1",
        "#9c755f",
        "#ff9da7",
        "#bab0ac",
    ),
    *("#86bcb6", "#8cd17d", "#b6992d", "#d37295"),
)
BAR: Final = 34
FRAME: Final = 17
NARROWEST: Final = 2.5
"""Minimum width in pixels of a frame of a flame graph. Narrower frames are not drawn."""
DEEPEST: Final = 26
"""Maximum frames of a stack that a flame graph shows."""
CHARACTER: Final = 5.6
"""Width of one character of a frame's name, in pixels."""


Stack = tuple[str, ...]
"""Names of a stack's frames, outermost first."""


class Bar(msgspec.Struct, frozen=True):
    """A stacked bar: the values of its parts by name."""

    name: str
    parts: Mapping[str, float]


class ReadyLine(msgspec.Struct, frozen=True):
    """A line of a chart. `moments` are the times, in seconds, when one more object became ready."""

    name: str
    moments: Sequence[float]


def draw(lines: Sequence[ReadyLine], *, title: str) -> str:
    """Draw, as SVG, how many objects were ready after how many seconds."""
    longest = max((line.moments[-1] for line in lines if line.moments), default=1.0)
    most = max((len(line.moments) for line in lines), default=1)
    drawn = [_format_path(line.moments, longest, most) for line in lines]
    reported = [
        f"{line.name}: {line.moments[-1]:.1f} s" if line.moments else line.name for line in lines
    ]
    frame = _draw_frame(title, across=f"seconds, 0 to {longest:.1f}", up=f"{most} ready")
    return _build_svg(frame, drawn, reported)


def shares(lines: Sequence[ReadyLine], *, title: str, unit: str) -> str:
    """Draw the cumulative distribution of durations on a logarithmic axis, as SVG.

    The `moments` of each line are durations in `unit`, in ascending order.
    """
    decades = max(
        1,
        math.ceil(
            math.log10(max((line.moments[-1] for line in lines if line.moments), default=1.0))
        ),
    )
    drawn: list[str] = []
    for line in lines:
        places = [max(0.0, math.log10(max(moment, 1.0))) for moment in line.moments]
        drawn.append(_format_path(places, decades, max(1, len(places))))
    reported = [f"{line.name}: {len(line.moments)}" for line in lines]
    frame = _draw_frame(title, across=unit, up="100 %")
    for decade in range(decades + 1):
        across = MARGIN + (WIDTH - 2 * MARGIN) * decade / decades
        frame.append(_draw_text(across, HEIGHT - MARGIN + 16, f"{10**decade}", "middle"))
        frame.append(
            f'<path d="M{across:.1f},{MARGIN} V{HEIGHT - MARGIN}" stroke="#dddddd" fill="none"/>'
        )
    return _build_svg(frame, drawn, reported)


def bars(rows: Sequence[Bar], *, title: str, unit: str) -> str:
    """Draw stacked bars as SVG. A part has the same colour in every bar."""
    parts = list(dict.fromkeys(part for row in rows for part in row.parts))
    colours = {part: FILLS[number % len(FILLS)] for number, part in enumerate(parts)}
    largest = max(sum(row.parts.values()) for row in rows)
    left = 20 + CHARACTER * 1.2 * max(len(row.name) for row in rows)
    scale = (WIDTH - left - 90) / largest
    top, height = 44, 44 + BAR * len(rows) + 18 * math.ceil(len(parts) / 3) + 20
    drawn = _open_svg(title, height)
    for number, row in enumerate(rows):
        across, down = left, top + BAR * number
        drawn.append(_draw_text(left - 8, down + 16, row.name, "end"))
        for part, value in row.parts.items():
            drawn.append(
                _draw_box(
                    (across, down, value * scale, BAR - 12),
                    colours[part],
                    f"{part}: {value:.1f} {unit}",
                )
            )
            across += value * scale
        drawn.append(
            _draw_text(across + 6, down + 16, f"{sum(row.parts.values()):.1f} {unit}", "start")
        )
    for number, part in enumerate(parts):
        across, down = (
            left + (WIDTH - left) / 3 * (number % 3),
            top + BAR * len(rows) + 18 * (number // 3) + 12,
        )
        drawn += [
            _draw_box((across, down - 10, 10, 10), colours[part], part),
            _draw_text(across + 16, down, part, "start"),
        ]
    return "\n".join([*drawn, "</svg>", ""])


def flames(stacks: Mapping[Stack, float], *, title: str) -> str:
    """Draw a flame graph as SVG, with callers above callees.

    `stacks` holds the samples of each stack. Frames common to all stacks, and frames narrower than
    `NARROWEST`, are left out.
    """
    ends_of_order = zip(
        min(stacks), max(stacks), strict=False
    )  # every stack begins with what these two share
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends_of_order))
    widths: dict[Stack, float] = {}
    for stack, samples in sorted(stacks.items()):
        for depth in range(shared + 1, min(len(stack), shared + DEEPEST) + 1):
            widths[stack[:depth]] = widths.get(stack[:depth], 0.0) + samples
    whole = sum(stacks.values())
    scale = (WIDTH - 20) / whole
    ends: dict[Stack, float] = {}
    """Horizontal position at which the next callee of each stack is drawn."""
    drawn: list[str] = []
    lowest = 0.0
    for stack, samples in widths.items():  # callers come before what they call
        caller = stack[:-1]
        across, width, name = ends.setdefault(caller, 10.0), samples * scale, stack[-1]
        ends[stack], ends[caller] = across, across + width
        if width < NARROWEST:
            continue
        down = 36 + FRAME * (len(stack) - shared - 1)
        lowest = max(lowest, down)
        colour = FILLS[zlib.crc32(name.encode()) % len(FILLS)]
        drawn.append(
            _draw_box((across, down, width, FRAME - 1), colour, f"{name}: {samples / whole:.1%}")
        )
        if shown := name[: int((width - 4) / CHARACTER)]:
            drawn.append(_draw_text(across + 2, down + 12, shown, "start"))
    return "\n".join(
        [*_open_svg(title, lowest + FRAME + 10), '<g font-size="10">', *drawn, "</g>", "</svg>", ""]
    )


def _draw_frame(title: str, *, across: str, up: str) -> list[str]:
    return [
        *_open_svg(title, HEIGHT),
        _draw_text(WIDTH / 2, HEIGHT - 10, across, "middle"),
        _draw_text(MARGIN, MARGIN - 8, up, "start"),
        f'<path d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}" stroke="black" '
        'fill="none"/>',
    ]


def _open_svg(title: str, height: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _draw_text(WIDTH / 2, 24, title, "middle"),
    ]


def _build_svg(frame: Sequence[str], paths: Sequence[str], reported: Sequence[str]) -> str:
    parts = list(frame)
    for number, (path, text) in enumerate(zip(paths, reported, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        parts.append(_draw_text(MARGIN + 12, MARGIN + 18 * (number + 1), text, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def _format_path(moments: Sequence[float], longest: float, most: int) -> str:
    points = [f"M{MARGIN},{HEIGHT - MARGIN}"]
    for count, moment in enumerate(moments, start=1):
        across = MARGIN + (WIDTH - 2 * MARGIN) * moment / longest
        up = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * count / most
        points.append(f"H{across:.1f} V{up:.1f}")
    return " ".join(points)


def _draw_text(across: float, down: float, text: str, anchor: str, colour: str = "black") -> str:
    return (
        f'<text x="{across:g}" y="{down:g}" text-anchor="{anchor}" '
        f'fill="{colour}">{_escape(text)}</text>'
    )


def _draw_box(place: tuple[float, float, float, float], colour: str, title: str) -> str:
    """Return an SVG rectangle. `place` is x, y, width and height; `title` is the tooltip."""
    across, down, width, height = place
    size = f'x="{across:.1f}" y="{down:g}" width="{width:.1f}" height="{height:g}"'
    return f'<rect {size} fill="{colour}"><title>{_escape(title)}</title></rect>'


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
