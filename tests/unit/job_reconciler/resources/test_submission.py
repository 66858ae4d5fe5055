"""The request that submits a job over HTTP (spec rayjob §9.1)."""

from typing import Any

import msgspec
import pytest

from common import errors
from common.api.opaque import Json
from job_reconciler.resources import submission
from support.builders.ray_job import a_ray_job

STATUS: Json = {"jobId": "train-fghjk"}


def _body(**spec: Any) -> Json:
    return msgspec.to_builtins(submission.build(a_ray_job(status=STATUS, **spec)))


def test_a_plain_job_has_only_an_id_and_an_entrypoint() -> None:
    assert _body(entrypoint=" echo a && echo b ") == {
        "entrypoint": " echo a && echo b ",
        "submission_id": "train-fghjk",
    }


@pytest.mark.acceptance("rayjob", 55)
def test_all_options_of_the_spec_are_sent() -> None:
    body = _body(
        runtimeEnvYAML="env_vars: {a: '1'}",
        metadata={"b": "c"},
        entrypointNumCpus=2,
        entrypointNumGpus=2,
        entrypointResources='{"R1": 2}',
    )
    assert body == {
        "entrypoint": "python main.py",
        "submission_id": "train-fghjk",
        "runtime_env": {"env_vars": {"a": "1"}},
        "metadata": {"b": "c"},
        "entrypoint_num_cpus": 2.0,
        "entrypoint_num_gpus": 2.0,
        "entrypoint_resources": {"R1": 2},
    }


@pytest.mark.parametrize("text", ["", "# nothing", "null"])
def test_a_blank_runtime_env_is_left_out(text: str) -> None:
    assert "runtime_env" not in _body(runtimeEnvYAML=text)


@pytest.mark.acceptance("rayjob", 58)
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("runtimeEnvYAML", "a: [1"),
        ("runtimeEnvYAML", "- a"),
        ("entrypointResources", '{"r1":"x"}'),
        ("entrypointResources", "[1]"),
        ("entrypointResources", "{"),
    ],
)
def test_an_unusable_field_is_named(field: str, text: str) -> None:
    with pytest.raises(errors.InvalidSpec, match=f"spec.{field}"):
        _body(**{field: text})
