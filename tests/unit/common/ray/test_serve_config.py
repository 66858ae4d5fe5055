"""YAML 1.1 as KubeRay reads it becomes the JSON that Ray takes; an error is one line (spec rayservice §12.4)."""

import asyncio

import pytest

from common.api.opaque import Json
from common.errors import InvalidSpec
from common.ray import go_yaml, serve_api, serve_config


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        pytest.param(
            "applications:\n- {name: a, num: 2}",
            {"applications": [{"name": "a", "num": 2}]},
            id="plain",
        ),
        pytest.param(
            "{2: a, true: b, 1.5: c}", {"2": "a", "true": "b", "1.5": "c"}, id="keys become text"
        ),
        pytest.param("a: 2024-01-01", {"a": "2024-01-01"}, id="a date stays text"),
        pytest.param("a: yes", {"a": True}, id="the spellings of true in YAML 1.1"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="aliases"),
        pytest.param('{"a": 1.5}', {"a": 1.5}, id="JSON"),
    ],
)
def test_what_yaml_means(text: str, parsed: Json) -> None:
    assert serve_config.to_json(text) == parsed


BOMB = "\n".join(
    [
        "a0: &a0 [1,1,1,1,1,1,1,1,1]",
        *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)),
    ]
)


TOWER = "\n".join(["a0: &a0 []", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 80))])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: [", "cannot be read as YAML: line 2", id="unfinished"),
        pytest.param("- a", "must be a mapping", id="a list"),
        pytest.param("", "must be a mapping", id="nothing"),
        pytest.param(
            "a: !!int b",
            "cannot be read as YAML: line 1: cannot decode",
            id="a tag that is not true",
        ),
        pytest.param(BOMB, "holds more than", id="aliases that explode"),
        pytest.param("a: " + "[" * 1000, "nested deeper than 64 levels", id="a tower of brackets"),
        pytest.param(
            "a: " + "[" * 500_000, "nested deeper than 64 levels", id="a tower up to the clouds"
        ),
        pytest.param(TOWER, "nested deeper than 64 levels", id="a tower of aliases"),
        pytest.param(
            f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 50)}]",
            "more than 4194304 characters",
            id="echo",
        ),
        pytest.param(
            f"a: {'x' * 2**20}",
            "has 1048579 characters, more than 1048576; make it shorter",
            id="a long text",
        ),
        pytest.param("a: .inf", "inf cannot be written in JSON", id="no number of JSON"),
        pytest.param("a: \ud800", "cannot be read as YAML", id="half a character"),
    ],
)
def test_an_invalid_value_is_reported_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem) as caught:
        serve_config.to_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("applications: [{name: a}, {name: b}]", {"a", "b"}, id="by name"),
        pytest.param("applications: [{import_path: x}]", {"default"}, id="one without a name"),
        pytest.param("applications: []", set[str](), id="none"),
        pytest.param("applications: {name: a}", set[str](), id="no list, which Serve will refuse"),
        pytest.param("applications: [a]", set[str](), id="no mapping, which Serve will refuse"),
        pytest.param("a: [", set[str](), id="no YAML"),
    ],
)
def test_which_applications_a_config_asks_for(text: str, names: set[str]) -> None:
    assert serve_config.read(text).applications == names


def test_a_text_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "applications: [{name: once}]"
    first = serve_config.read(text)
    monkeypatch.setattr(go_yaml, "load", None)
    assert serve_config.read(text) is first
    assert serve_config.to_json(text) == {"applications": [{"name": "once"}]}


def test_what_is_kept_of_texts_is_bounded() -> None:
    texts = [f"applications: [{{name: '{number}{'x' * 2**19}'}}]" for number in range(80)]
    for text in texts:
        serve_config.read(text)
    assert not serve_config.is_read(texts[0])
    assert serve_config.is_read(texts[-1])


async def test_the_loop_goes_on_while_a_long_text_is_read() -> None:
    apps = "".join(
        f"- name: app{number}\n  import_path: a:b\n  args: {{lr: 1e-4, at: 10:30}}\n"
        for number in range(2_500)
    )
    text, beats = f"applications:\n{apps}", 0
    assert len(text) > 150_000

    async def read() -> None:
        await serve_api.read_ahead(text)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        while not reading.done():
            await asyncio.sleep(0.005)
            beats += 1
    assert len(serve_config.read(text).applications) == 2_500
    assert beats >= 5


async def test_what_was_read_by_the_thread_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "applications: []\n" + "# note\n" * 1_000
    await serve_api.read_ahead(text)
    monkeypatch.setattr(go_yaml, "load", None)
    await serve_api.read_ahead(text, None)
    assert serve_config.to_json(text) == {"applications": []}
