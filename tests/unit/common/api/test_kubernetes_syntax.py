"""Kubernetes' rules for names and labels, with its messages."""

import re

from hypothesis import given
from hypothesis import strategies as st

from common.api import kubernetes_syntax
from support.tables import cases

KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@cases(
    ("key", "problems"),
    {
        "a plain key": ("app", []),
        "a key with a prefix": ("example.com/app", []),
        "no name at all": ("", ["name part must be non-empty", f"name part {KEY}"]),
        "an empty prefix": ("/app", ["prefix part must be non-empty"]),
        "a prefix is a domain": ("Example/app", [f"prefix part {SUBDOMAIN}"]),
        "a long name": ("a" * 64, ["name part must be no more than 63 bytes"]),
        "bytes count": ("ü" * 32, ["name part must be no more than 63 bytes", f"name part {KEY}"]),
        "one slash at most": (
            "a/b/c",
            [
                f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ],
        ),
    },
)
def test_label_keys(key: str, problems: list[str]) -> None:
    assert kubernetes_syntax.label_key_problems(key) == problems


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=70))
def test_label_values_hold_what_selectors_can_spell(value: str) -> None:
    fits = (
        len(value.encode()) <= 63
        and re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", value) is not None
    )
    assert (kubernetes_syntax.label_value_problems(value) == []) == fits


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
def test_dns_1035_labels_are_dns_1123_labels_too(name: str) -> None:
    assert kubernetes_syntax.dns_1035_problems(name) == []
    assert kubernetes_syntax.dns_1123_problems(name) == []
