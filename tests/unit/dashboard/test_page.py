"""The page's files: nothing in them turns text into markup, and nothing is loaded from elsewhere."""

import re
from importlib import resources

import pytest

from raybus_dashboard import responses

FILES = {
    name: resources.files("raybus_dashboard").joinpath("page", name).read_text()
    for name, _ in responses.FILES.values()
}
MARKUP = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser"),
    *("createContextualFragment", "eval(", "Function(", "srcdoc"),
)
NAMESPACE = "http://www.w3.org/2000/svg"


@pytest.mark.parametrize("name", FILES)
def test_no_text_becomes_markup_or_script(name: str) -> None:
    assert [each for each in MARKUP if each in FILES[name]] == []


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    addresses = re.findall(
        r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", re.sub(r"(?m)^\s*//.*$", "", FILES[name])
    )
    assert [each for each in addresses if each != NAMESPACE] == []


def test_the_page_has_neither_inline_script_nor_inline_style() -> None:
    page = FILES["index.html"]
    assert re.findall(r"\son\w+=|<style|\sstyle=|<script(?![^>]*src=)", page) == []


def test_the_page_is_small() -> None:
    assert sum(len(each) for each in FILES.values()) < 76_000


def test_what_the_page_may_do_is_spelled_out() -> None:
    assert "unsafe" not in responses.POLICY
    assert responses.POLICY.startswith("default-src 'none';")
