"""Our reader of YAML and KubeRay's agree on every text of the golden file, type by type."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from common.ray import go_yaml
from common.ray.go_yaml import NotYamlError
from support.kuberay.yaml_texts import TEXTS

GOLDEN = Path(__file__).parents[3] / "golden" / "serve_config" / "kuberay.json"
CASES: list[dict[str, str]] = json.loads(GOLDEN.read_text())


def test_the_golden_file_holds_every_text() -> None:
    assert tuple(each["yaml"] for each in CASES) == TEXTS
    assert len(TEXTS) > 400


@pytest.mark.parametrize("case", CASES, ids=lambda each: ascii(each["yaml"])[:40])
def test_a_text_means_what_kuberay_reads(case: dict[str, str]) -> None:
    try:
        found: Any = go_yaml.load(case["yaml"])
        found = {} if found is None else found
        if not isinstance(found, dict):
            found = NotYamlError("not a mapping")
    except NotYamlError as problem:
        found = problem
    if "error" in case:
        assert isinstance(found, NotYamlError), f"KubeRay refuses it: {case['error']}"
    else:
        assert not isinstance(found, NotYamlError), f"KubeRay takes it as {case['json']}"
        assert _typed(found) == _typed(json.loads(case["json"]))


def _typed(value: Any) -> Any:
    """Return a value in which 1, 1.0 and true differ."""
    match value:
        case dict():
            return {key: _typed(each) for key, each in cast("dict[str, Any]", value).items()}
        case list():
            return [_typed(each) for each in cast("list[Any]", value)]
        case _:
            return (type(value).__name__, value)
