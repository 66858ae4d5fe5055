"""A picture of a run: how many clusters were ready after how long, one line for each contender. Pure: SVG text."""

from collections.abc import Sequence
from typing import Final

import msgspec

WIDTH: Final = 720
HEIGHT: Final = 400
MARGIN: Final = 50
COLOURS: Final = ("#999999", "#0060c0", "#d06000", "#208020")


class Line(msgspec.Struct, frozen=True):
    """The moments, in seconds and in order, at which one more was ready."""

    name: str
    moments: Sequence[float]


def draw(lines: Sequence[Line], *, title: str) -> str:
    """Return the picture."""
    longest = max((line.moments[-1] for line in lines if line.moments), default=1.0)
    most = max((len(line.moments) for line in lines), default=1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(WIDTH / 2, 24, title, "middle"),
        _text(WIDTH / 2, HEIGHT - 10, f"seconds, 0 to {longest:.1f}", "middle"),
        _text(MARGIN, MARGIN - 8, f"{most} ready", "start"),
        f'<path d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}" stroke="black" fill="none"/>',
    ]
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="{_path(line.moments, longest, most)}" stroke="{colour}" stroke-width="2" fill="none"/>')
        told = f"{line.name}: {line.moments[-1]:.1f} s" if line.moments else line.name
        parts.append(_text(MARGIN + 12, MARGIN + 18 * (number + 1), told, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def _path(moments: Sequence[float], longest: float, most: int) -> str:
    points = [f"M{MARGIN},{HEIGHT - MARGIN}"]
    for count, moment in enumerate(moments, start=1):
        across = MARGIN + (WIDTH - 2 * MARGIN) * moment / longest
        up = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * count / most
        points.append(f"H{across:.1f} V{up:.1f}")
    return " ".join(points)


def _text(across: float, down: float, words: str, anchor: str, colour: str = "black") -> str:
    safe = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{across:g}" y="{down:g}" text-anchor="{anchor}" fill="{colour}">{safe}</text>'
