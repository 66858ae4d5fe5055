"""YAML 1.1 as KubeRay reads it becomes the JSON that Ray takes; what cannot, is told in one line (spec rayservice §12.4)."""

import pytest

from common.api.opaque import Json
from common.errors import InvalidSpec
from common.ray import serve_config


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        pytest.param("applications:\n- {name: a, num: 2}", {"applications": [{"name": "a", "num": 2}]}, id="plain"),
        pytest.param("{2: a, true: b, null: c}", {"2": "a", "true": "b", "null": "c"}, id="keys become text"),
        pytest.param("a: 2024-01-01", {"a": "2024-01-01"}, id="a date stays text"),
        pytest.param("a: yes", {"a": True}, id="YAML 1.1's words for true"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="aliases"),
        pytest.param('{"a": 1.5}', {"a": 1.5}, id="JSON"),
    ],
)
def test_what_yaml_means(text: str, parsed: Json) -> None:
    assert serve_config.to_json(text) == parsed


BOMB = "\n".join(
    ["a0: &a0 [1,1,1,1,1,1,1,1,1]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: [", "is not YAML, line 1", id="unfinished"),
        pytest.param("- a", "must be a mapping", id="a list"),
        pytest.param("", "must be a mapping", id="nothing"),
        pytest.param("a: !!python/object:os.system {}", "is not YAML", id="a tag that is not data"),
        pytest.param(BOMB, "holds more than", id="aliases that explode"),
        pytest.param("[" * 1000, "nested too deeply", id="a tower of brackets"),
    ],
)
def test_what_it_cannot_mean_is_told_in_one_line(text: str, problem: str) -> None:
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
    assert serve_config.applications(text) == names
