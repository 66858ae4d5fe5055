"""Read the operator's configuration file, in KubeRay's format, and choose the batch scheduler.

`apiVersion: config.ray.io/v1alpha1`, `kind: Configuration`; spec raycluster §18.1. Each service
decodes only the fields that it uses and ignores the others, as KubeRay ignores unknown fields.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from common.errors import InvalidSpec
from common.feature_gates import FeatureGate, Gates
from common.ray.batch_schedulers import KAI, SCHEDULER_PLUGINS, VOLCANO, YUNIKORN
from common.settings import OPERATOR_FILE

BATCH_SCHEDULER: Final = "RAYBUS_BATCH_SCHEDULER"
"""Environment variable with the batch scheduler; used if the configuration file sets none.

The values are those of KubeRay's `--batch-scheduler`."""
SCHEDULERS: Final = (VOLCANO, YUNIKORN, SCHEDULER_PLUGINS, KAI)
T = TypeVar("T")


class BatchSchedulerFields(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of the file that choose the batch scheduler."""

    api_version: Literal["config.ray.io/v1alpha1"]
    kind: Literal["Configuration"]
    batch_scheduler: str = ""
    enable_batch_scheduler: bool = False
    """KubeRay's old switch for Volcano."""


class JobFields(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of the file that concern RayJobs."""

    api_version: Literal["config.ray.io/v1alpha1"]
    kind: Literal["Configuration"]
    delete_ray_job_after_job_finishes: bool | None = None


def read_text(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return path and text of the configuration file; None if `environ` names no file.

    Raises `InvalidSpec` if the file cannot be read.
    """
    named = environ.get(OPERATOR_FILE, "").strip()
    if not named:
        return None
    path = str(Path(named))
    try:
        return path, Path(named).read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidSpec(
            f"{OPERATOR_FILE}={path!r}: {problem}; name a readable file or unset it"
        ) from problem


def parse(text: str, fields: type[T], *, path: str) -> T:
    """Decode the fields that the struct type `fields` declares from the text of the file.

    Raises `InvalidSpec` with `path` and the problem.
    """
    try:
        return msgspec.yaml.decode(text.encode(), type=fields)
    except msgspec.DecodeError as problem:
        what = " ".join(str(problem).split())
        raise InvalidSpec(
            f"failed to decode config file {path}: {what}; correct the file"
        ) from problem


def read_batch_scheduler(environ: Mapping[str, str], gates: Gates) -> str:
    """Return the batch scheduler in the file, or else in the environment; "" if there is none."""
    name, is_enabled = "", False
    if (path_and_text := read_text(environ)) is not None:
        path, text = path_and_text
        fields = parse(text, BatchSchedulerFields, path=path)
        name, is_enabled = fields.batch_scheduler, fields.enable_batch_scheduler
    of_file = choose_batch_scheduler(name, is_enabled=is_enabled, gates=gates)
    return of_file or choose_batch_scheduler(environ.get(BATCH_SCHEDULER, "").strip(), gates=gates)


def read_deletes_jobs(environ: Mapping[str, str]) -> bool:
    """Return whether finished RayJobs with `shutdownAfterJobFinishes` must be deleted.

    KubeRay parses this field of the file and ignores it (spec rayjob §1).
    """
    if (path_and_text := read_text(environ)) is None:
        return False
    path, text = path_and_text
    fields = parse(text, JobFields, path=path)
    return bool(fields.delete_ray_job_after_job_finishes)


def choose_batch_scheduler(name: str, *, is_enabled: bool = False, gates: Gates) -> str:
    """Return the batch scheduler, "" for none; `is_enabled` is KubeRay's old switch for Volcano.

    Raises `InvalidSpec` if the scheduler `name` is unknown or if options contradict each other.
    """
    if name and is_enabled:
        raise InvalidSpec(
            "both feature flags enable-batch-scheduler (deprecated) and batch-scheduler are set. "
            "Please use batch-scheduler only"
        )
    if FeatureGate.KUBERNETES_WAS in gates and (name or is_enabled):
        raise InvalidSpec(
            "the KubernetesWAS feature gate cannot be combined with --batch-scheduler or "
            "--enable-batch-scheduler"
        )
    if is_enabled:
        return VOLCANO
    if name and name not in SCHEDULERS:
        raise InvalidSpec(
            f"scheduler is not supported, name={name}; known: {', '.join(SCHEDULERS)}"
        )
    return name
