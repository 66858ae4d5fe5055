"""Build the request that submits a RayJob's job to Ray (spec rayjob §8.1, §9.1)."""

from typing import Final, cast

import msgspec

from common import errors
from common.api import go_json
from common.api.opaque import Json
from common.api.ray_job import RayJob
from common.ray import go_yaml
from common.ray.jobs import Submission

_RUNTIME_ENV: Final = "spec.runtimeEnvYAML"


def build(job: RayJob) -> Submission:
    """Return the request that submits the job over HTTP.

    Raises `InvalidSpec`, which names the field, if a field of the spec cannot be read.
    """
    spec = job.spec
    return Submission(
        entrypoint=spec.entrypoint,
        submission_id=job.status.job_id,
        runtime_env=_read_runtime_env(job),
        metadata=spec.metadata or None,
        num_cpus=spec.entrypoint_num_cpus or None,
        num_gpus=spec.entrypoint_num_gpus or None,
        resources=_read_resources(spec.entrypoint_resources),
    )


def load_runtime_env(job: RayJob) -> go_yaml.Value:
    """Return the parsed runtime environment; None if it is blank or has only comments.

    Raises `InvalidSpec` if it cannot be read.
    """
    try:
        return go_yaml.load(job.spec.runtime_env)
    except go_yaml.NotYamlError as error:
        raise errors.InvalidSpec(f"{_RUNTIME_ENV} cannot be read as YAML: {error}") from error


def encode(value: object) -> str:
    """Encode a value as JSON the way Go does: keys sorted, some characters escaped."""
    return go_json.escaped(msgspec.json.encode(value, order="sorted").decode())


def _read_runtime_env(job: RayJob) -> Json | None:
    value: object = load_runtime_env(job)
    if value is not None and not isinstance(value, dict):
        raise errors.InvalidSpec(f"{_RUNTIME_ENV} is not a mapping")
    return cast("Json | None", value)


def _read_resources(text: str) -> dict[str, int | float] | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, int | float])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise errors.InvalidSpec(
            f"spec.entrypointResources is not a JSON object of numbers: {error}"
        ) from error
