"""YAML 1.1 as KubeRay reads it becomes the JSON that Ray accepts; an error is one line (spec
rayservice §12.4).
"""

import pytest

from common.api.opaque import Json
from common.errors import InvalidSpec
from common.ray import serve_config
from support.tables import cases


@cases(
    ("text", "parsed"),
    {
        "plain": (
            "applications:\n- {name: a, num: 2}",
            {"applications": [{"name": "a", "num": 2}]},
        ),
        "keys become text": ("{2: a, true: b, 1.5: c}", {"2": "a", "true": "b", "1.5": "c"}),
        "a date stays text": ("a: 2024-01-01", {"a": "2024-01-01"}),
        "the spellings of true in YAML 1.1": ("a: yes", {"a": True}),
        "aliases": ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        "JSON": ('{"a": 1.5}', {"a": 1.5}),
    },
)
def test_what_yaml_means(text: str, parsed: Json) -> None:
    assert serve_config.parse(text).to_json() == parsed


BOMB = "\n".join(
    [
        "a0: &a0 [1,1,1,1,1,1,1,1,1]",
        *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)),
    ]
)


TOWER = "\n".join(["a0: &a0 []", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 80))])


@cases(
    ("text", "problem"),
    {
        "unfinished": ("a: [", "cannot be read as YAML: line 2"),
        "a list": ("- a", "must be a mapping"),
        "nothing": ("", "must be a mapping"),
        "a tag that is not true": ("a: !!int b", "cannot be read as YAML: line 1: cannot decode"),
        "aliases that explode": (BOMB, "holds more than"),
        "a tower of brackets": ("a: " + "[" * 1000, "nested deeper than 64 levels"),
        "a tower up to the clouds": ("a: " + "[" * 500_000, "nested deeper than 64 levels"),
        "a tower of aliases": (TOWER, "nested deeper than 64 levels"),
        "echo": (
            f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 50)}]",
            "more than 4194304 characters",
        ),
        "a long text": (
            f"a: {'x' * 2**20}",
            "has 1048579 characters, more than 1048576; make it shorter",
        ),
        "no number of JSON": ("a: .inf", "inf cannot be written in JSON"),
        "half a character": ("a: \ud800", "cannot be read as YAML"),
    },
)
def test_an_invalid_value_is_reported_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem) as caught:
        serve_config.parse(text).to_json()
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
    assert serve_config.parse(text).applications == names
