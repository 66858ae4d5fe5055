"""Texts that tenants wrote stay texts on a terminal: no escape sequence, no markup."""

from collections.abc import Callable

import msgspec
import pytest
import yaml
from rich.console import RenderableType
from rich.text import Text
from typer.testing import CliRunner

from raybus_cli import main, printing
from support.tables import cases

NASTY = [
    pytest.param("\x1b]0;owned\x07", "", id="the title of the window"),
    pytest.param("\x1b[2J\x1b[H", "", id="a screen that is wiped"),
    pytest.param("\x9b31m", "", id="an escape of one character"),
    pytest.param("\x1b[\x1b[31m31m", "\ufffd[31m", id="an escape around another"),
    pytest.param("\u202egnp.exe", "\ufffdgnp.exe", id="writing from right to left"),
    pytest.param("a\rb", "a\ufffdb", id="a line that is written over"),
]
"""Texts with control sequences or markup, each with the text that remains."""


def a_table(text: str) -> RenderableType:
    return printing.Table((printing.Column("name"),), [(text,)])


def is_harmless(shown: str) -> bool:
    return not any(each in shown for each in "\x1b\x07\x9b\u202e\r")


@pytest.mark.parametrize(("text", "left"), NASTY)
@pytest.mark.parametrize("form", [str, Text, a_table])
def test_no_control_character_reaches_the_terminal(
    text: str, left: str, form: Callable[[str], RenderableType], capsys: pytest.CaptureFixture[str]
) -> None:
    printing.show(form(text))
    printing.print_message(text)
    printing.print_message(text, err=True)
    captured = capsys.readouterr()
    assert is_harmless(captured.out)
    assert is_harmless(captured.err)
    assert captured.err == f"{left}\n"
    assert captured.out.endswith(f"{left}\n")


@pytest.mark.parametrize(
    "text", ["[/x]", "[bold]a[/bold]", "[link=http://x]a[/link]", "[@click=x]y"]
)
def test_brackets_are_no_markup(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    printing.show(a_table(text))
    printing.show(text)
    assert capsys.readouterr().out.count(text) == 2


def test_colours_of_a_text_leave_no_rest(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_message("\x1b[36mray::build()\x1b[39m failed\x07")
    assert capsys.readouterr().out == "ray::build() failed\ufffd\n"


@cases(
    ("verb", "given", "message"),
    {
        "a slip": ("list", "jsonn", "did you mean 'json'?"),
        "a form that the verb does not have": (
            "lint",
            "name",
            "'name' is not text, wide, json or yaml",
        ),
    },
)
def test_an_unknown_form_is_refused_with_those_there_are(
    verb: str, given: str, message: str
) -> None:
    done = CliRunner().invoke(main.build(verb), [verb, "-o", given], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


OBEYED = "a\x9b31m\x7f\u202e\u2066\u200f\u2028\x85z"


@pytest.mark.parametrize(
    "value", [{"message": OBEYED}, {OBEYED: 1}, [OBEYED, f"two\nlines {OBEYED}", f"- {OBEYED} # a"]]
)
def test_what_a_terminal_obeys_is_escaped_in_data(value: object) -> None:
    json_text = printing.encode_text(value, printing.Output.JSON)
    yaml_text = printing.encode_text(value, printing.Output.YAML)
    assert msgspec.json.decode(json_text) == value
    assert yaml.safe_load(yaml_text) == value
    assert msgspec.json.decode(printing.encode_line(value)) == value
    for character in set(OBEYED) - set("a31mz"):
        assert character not in json_text + yaml_text + printing.encode_line(value)


def test_texts_of_other_languages_stay_readable_in_data() -> None:
    assert printing.encode_text({"a": "größer"}, printing.Output.YAML) == "a: größer\n"
