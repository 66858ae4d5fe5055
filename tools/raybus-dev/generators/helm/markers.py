"""Marks Helm expressions in objects, and writes such objects as Helm templates.

A marked string is an expression; a marked key or list element is conditional. Larger values are
written as JSON, so that each marker stands on one line of YAML. The braces of Helm can then be
inserted by replacing text.
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
    """Return the marker for a Helm expression, which must yield one line of YAML."""
    return f"⟦{{{{ {expression} }}}}⟧"


def either(condition: str, then: str, otherwise: str) -> str:
    """Return the marker for `then` if a Helm condition is true, and `otherwise` if it is false."""
    return f"⟦{{{{ if {condition} }}}}{then}{{{{ else }}}}{otherwise}{{{{ end }}}}⟧"


def field(condition: str, name: str) -> str:
    """Return the marker for the name of a field that exists only if a Helm condition is true.

    The field must not be the first of its object.
    """
    return f"⟦if {condition}⟧{name}"


def element(condition: str, text: str) -> str:
    """Return the marker for a list element that exists only if a Helm condition is true."""
    return f"⟦if {condition}⟧ {text}"


def template(document: Document) -> str:
    """Return the Helm template of an object that contains markers."""
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False, width=_WIDE)
    text = _ELEMENT.sub(r"\1{{- if \2 }}\n\1- \3\n\1{{- end }}", text)
    text = _FIELD.sub(r"\1{{- if \2 }}\n\1\3: \4\n\1{{- end }}", text)
    return _EXPRESSION.sub(r"\1", text)
