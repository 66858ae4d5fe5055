"""Template expressions inside objects, and such objects as the text of a Helm template.

A marked string stands for an expression, and a marked key or list element for one that is there on a condition. Both are on one line
of YAML, so text is enough to put the braces in: whatever is larger is written as JSON.
"""

import re
from typing import Final

import yaml

from support.manifests import Document

_WIDE: Final = 10_000
_ELEMENT: Final = re.compile(r"^( *)- ⟦if (.+?)⟧ (.*)$", re.MULTILINE)
_FIELD: Final = re.compile(r"^( *)⟦if (.+?)⟧(\S+?): (.*)$", re.MULTILINE)
_EXPRESSION: Final = re.compile(r"'?⟦(.+?)⟧'?")


def value(expression: str) -> str:
    """Stand for what an expression yields; it must yield YAML of one line."""
    return f"⟦{{{{ {expression} }}}}⟧"


def either(condition: str, then: str, otherwise: str) -> str:
    """Stand for one of two texts."""
    return f"⟦{{{{ if {condition} }}}}{then}{{{{ else }}}}{otherwise}{{{{ end }}}}⟧"


def field(condition: str, name: str) -> str:
    """Name a field that is there on a condition; it must not be the first of its object."""
    return f"⟦if {condition}⟧{name}"


def element(condition: str, text: str) -> str:
    """Stand for an element of a list that is there on a condition."""
    return f"⟦if {condition}⟧ {text}"


def template(document: Document) -> str:
    """Return the text of a template that yields this object."""
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False, width=_WIDE)
    text = _ELEMENT.sub(r"\1{{- if \2 }}\n\1- \3\n\1{{- end }}", text)
    text = _FIELD.sub(r"\1{{- if \2 }}\n\1\3: \4\n\1{{- end }}", text)
    return _EXPRESSION.sub(r"\1", text)
