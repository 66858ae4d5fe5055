"""A picture of a run: how many clusters were ready after how long, or how many changes took how long. Pure: SVG text."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

WIDTH: Final = 720
HEIGHT: Final = 400
MARGIN: Final = 50
COLOURS: Final = ("#999999", "#0060c0", "#d06000", "#208020")


class Line(msgspec.Struct, frozen=True):
    """The moments, in order, at which one more was ready."""

    name: str
    moments: Sequence[float]


def draw(lines: Sequence[Line], *, title: str) -> str:
    """Return the picture."""
    longest = max((line.moments[-1] for line in lines if line.moments), default=1.0)
    most = max((len(line.moments) for line in lines), default=1)
    drawn = [_path(line.moments, longest, most) for line in lines]
    reported = [f"{line.name}: {line.moments[-1]:.1f} s" if line.moments else line.name for line in lines]
    frame = _frame(title, across=f"seconds, 0 to {longest:.1f}", up=f"{most} ready")
    return _picture(frame, drawn, reported)


def shares(lines: Sequence[Line], *, title: str, unit: str) -> str:
    """Return the picture of how large a share took at most how long; each power of ten is as wide as the others."""
    decades = max(1, math.ceil(math.log10(max((line.moments[-1] for line in lines if line.moments), default=1.0))))
    drawn: list[str] = []
    for line in lines:
        places = [max(0.0, math.log10(max(moment, 1.0))) for moment in line.moments]
        drawn.append(_path(places, decades, max(1, len(places))))
    reported = [f"{line.name}: {len(line.moments)}" for line in lines]
    frame = _frame(title, across=unit, up="100 %")
    for decade in range(decades + 1):
        across = MARGIN + (WIDTH - 2 * MARGIN) * decade / decades
        frame.append(_text(across, HEIGHT - MARGIN + 16, f"{10**decade}", "middle"))
        frame.append(f'<path d="M{across:.1f},{MARGIN} V{HEIGHT - MARGIN}" stroke="#dddddd" fill="none"/>')
    return _picture(frame, drawn, reported)


def _frame(title: str, *, across: str, up: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(WIDTH / 2, 24, title, "middle"),
        _text(WIDTH / 2, HEIGHT - 10, across, "middle"),
        _text(MARGIN, MARGIN - 8, up, "start"),
        f'<path d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}" stroke="black" fill="none"/>',
    ]


def _picture(frame: Sequence[str], paths: Sequence[str], reported: Sequence[str]) -> str:
    parts = list(frame)
    for number, (path, text) in enumerate(zip(paths, reported, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        parts.append(_text(MARGIN + 12, MARGIN + 18 * (number + 1), text, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def _path(moments: Sequence[float], longest: float, most: int) -> str:
    points = [f"M{MARGIN},{HEIGHT - MARGIN}"]
    for count, moment in enumerate(moments, start=1):
        across = MARGIN + (WIDTH - 2 * MARGIN) * moment / longest
        up = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * count / most
        points.append(f"H{across:.1f} V{up:.1f}")
    return " ".join(points)


def _text(across: float, down: float, text: str, anchor: str, colour: str = "black") -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{across:g}" y="{down:g}" text-anchor="{anchor}" fill="{colour}">{safe}</text>'
