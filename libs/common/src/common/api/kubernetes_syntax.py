"""Kubernetes' rules for names and labels, with its messages. Lengths count bytes."""

from functools import lru_cache
from typing import Final

import re2

_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_DNS_1123: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_DNS_1123}(\.{_DNS_1123})*"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"

_MAX_LENGTH: Final = 253
"""Maximum length of a name."""
_KEY_CHARACTERS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)


def dns_1035_problems(name: str) -> list[str]:
    """Return the violations of the rules for a DNS-1035 label."""
    text = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with "
        "an alphabetic character, "
        "and end with an alphanumeric character"
    )
    return _too_long(name, 63) + _mismatch(name, _DNS_1035, text, "my-name", "abc-123")


def dns_1123_problems(name: str) -> list[str]:
    """Return the violations of the rules for a DNS-1123 label."""
    if _matches(_SUBDOMAIN, name) and "." in name:
        return [*_too_long(name, 63), "must not contain dots"]
    text = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character"
    )
    return _too_long(name, 63) + _mismatch(name, _DNS_1123, text, "my-name", "123-abc")


def label_key_problems(key: str) -> list[str]:
    """Return the violations of the rules for a label key."""
    examples = ("MyName", "my.name", "123-abc")
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        rule = _mismatch("", _KEY, f"a valid label key {_KEY_CHARACTERS}", *examples)[0]
        return [f"{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    domain = (
        (dns_1123_subdomain_problems(prefix) if prefix else ["must be non-empty"]) if slash else []
    )
    size = ["must be non-empty"] if not name else _too_long(name, 63)
    own = (*size, *_mismatch(name, _KEY, _KEY_CHARACTERS, *examples))
    return [
        *(f"prefix part {problem}" for problem in domain),
        *(f"name part {problem}" for problem in own),
    ]


def label_value_problems(value: str) -> list[str]:
    """Return the violations of the rules for a label value."""
    text = f"a valid label must be an empty string or {_KEY_CHARACTERS.removeprefix('must ')}"
    return _too_long(value, 63) + _mismatch(value, _VALUE, text, "MyValue", "my_value", "12345")


def dns_1123_subdomain_problems(name: str) -> list[str]:
    """Return the violations of the rules for a DNS-1123 subdomain, the form of most names."""
    text = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
        "or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _too_long(name, _MAX_LENGTH) + _mismatch(name, _SUBDOMAIN, text, "example.com")


def path_segment_problems(name: str) -> list[str]:
    """Return the violations of the rules for names of RBAC objects, which are URL path segments."""
    if name in {"", ".", ".."}:
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def _too_long(text: str, most: int) -> list[str]:
    return [f"must be no more than {most} bytes"] if len(text.encode()) > most else []


def _mismatch(text: str, pattern: str, rule: str, *examples: str) -> list[str]:
    if _matches(pattern, text):
        return []
    shown = " or ".join(f"'{example}', " for example in examples)
    return [f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"]


def _matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a text; results for texts of legal length are cached."""
    return (_remembered_match if len(text) <= _MAX_LENGTH else _match)(pattern, text)


def _match(pattern: str, text: str) -> bool:
    return re2.fullmatch(pattern, text) is not None


_remembered_match: Final = lru_cache(maxsize=4096)(_match)
