"""The pictures of the dashboard in docs/images, each recorded with the texts of the page at the
time when it was taken.
"""

import ast
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from string import Formatter
from typing import Final

from raybus_cli.events import rendering
from support.manifests import ROOT

IMAGES: Final = ROOT / "docs" / "images"
RECORD: Final = IMAGES / "dashboard-texts.txt"
"""File with a line for each picture: its name, and the digest of the page's texts."""
PAGE: Final = ROOT / "libs" / "dashboard" / "src" / "raybus_dashboard" / "page"
REMEDY: Final = "take them anew: pytest tests/integration/dashboard --update-pictures"
_HTML_TEXT: Final = re.compile(r">([^<>]*[A-Za-z][^<>]*)<")
_JS_STRING: Final = re.compile(r'"([^"\n]*)"|`([^`]*)`')


def texts_digest() -> str:
    """Return a digest of all texts that the page may show: its own texts, and those of the
    timeline's lines.
    """
    found = sorted({" ".join(text.split()) for text in _texts()})
    return sha256("\n".join(found).encode()).hexdigest()[:16]


def recorded() -> dict[str, str]:
    """Return the digest of the texts of each recorded picture, by its name."""
    lines = RECORD.read_text().splitlines() if RECORD.exists() else []
    return dict(line.split() for line in lines)


def record(*names: str) -> None:
    """Record that pictures were taken of the page with its current texts."""
    known = recorded() | dict.fromkeys(names, texts_digest())
    there = {name: digest for name, digest in known.items() if (IMAGES / name).exists()}
    RECORD.write_text("".join(f"{name} {there[name]}\n" for name in sorted(there)))


def _texts() -> Iterator[str]:
    yield from _HTML_TEXT.findall((PAGE / "index.html").read_text())
    for script in sorted(PAGE.glob("*.js")):
        for plain, template in _JS_STRING.findall(script.read_text()):
            if " " in (text := plain or template) or text.istitle():
                yield text
    for node in ast.walk(ast.parse(Path(rendering.__file__).read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    for template in rendering.TEXTS.values():
        yield "".join(literal for literal, *_ in Formatter().parse(template))
