"""Options of a RayCronJob that KubeRay's CRD does not have: annotations of the RayCronJob.

Without them a RayCronJob behaves as under KubeRay: runs may overlap, and finished RayJobs stay.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from common import durations, labels
from common.api import kubernetes_syntax

MAX_HISTORY: Final = 10_000
"""Largest value of the annotations that limit the number of finished RayJobs."""


class Concurrency(StrEnum):
    """What happens to a run that is due while an earlier run has not ended."""

    ALLOW = "Allow"
    """The new run starts beside the earlier run."""
    FORBID = "Forbid"
    """The new run waits, at most for the starting deadline."""
    REPLACE = "Replace"
    """The earlier run is deleted, and the new run starts."""


class CronPolicyError(ValueError):
    """Raised for an invalid annotation; the text names the annotation and the allowed values."""


class CronPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one RayCronJob."""

    concurrency: Concurrency = Concurrency.ALLOW
    starting_deadline: timedelta | None = None
    """Maximum delay with which a run may start; None for no limit."""
    succeeded_limit: int | None = None
    """Number of succeeded RayJobs that are kept; None keeps all."""
    failed_limit: int | None = None
    """Number of failed RayJobs that are kept; None keeps all."""
    job_labels: dict[str, str] = {}
    """Labels that each RayJob gets, such as the queue of Kueue."""


def parse(annotations: Mapping[str, str]) -> CronPolicy:
    """Return the options in the annotations of a RayCronJob. Raises `CronPolicyError`."""
    return CronPolicy(
        concurrency=_parse_concurrency(
            annotations.get(labels.CONCURRENCY_POLICY, Concurrency.ALLOW)
        ),
        starting_deadline=_parse_deadline(annotations.get(labels.STARTING_DEADLINE)),
        succeeded_limit=_parse_limit(annotations, labels.SUCCEEDED_JOBS_LIMIT),
        failed_limit=_parse_limit(annotations, labels.FAILED_JOBS_LIMIT),
        job_labels=_parse_job_labels(annotations.get(labels.JOB_LABELS, "")),
    )


def _parse_concurrency(text: str) -> Concurrency:
    try:
        return Concurrency(text)
    except ValueError:
        allowed = ", ".join(Concurrency)
        raise CronPolicyError(
            f"annotation {labels.CONCURRENCY_POLICY} must be one of {allowed}, not {_shown(text)}"
        ) from None


def _parse_deadline(text: str | None) -> timedelta | None:
    if text is None:
        return None
    deadline = durations.parse_or_seconds(text)
    if deadline is None or deadline <= timedelta(0):
        raise CronPolicyError(
            f"annotation {labels.STARTING_DEADLINE} must be a duration above 0, such as 10m, "
            f"not {_shown(text)}"
        )
    return deadline


def _parse_limit(annotations: Mapping[str, str], name: str) -> int | None:
    text = annotations.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_HISTORY))
    if not is_number or int(text) > MAX_HISTORY:
        raise CronPolicyError(
            f"annotation {name} must be a whole number from 0 to {MAX_HISTORY}, not {_shown(text)}"
        )
    return int(text)


def _parse_job_labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = pair.partition("=")
        if not separator or _is_invalid(key, value):
            raise CronPolicyError(
                f"annotation {labels.JOB_LABELS} must have the form key=value,key=value with valid "
                f"labels, not {_shown(pair)}"
            )
        found[key] = value
    return found


def _is_invalid(key: str, value: str) -> bool:
    return bool(
        kubernetes_syntax.label_key_problems(key) or kubernetes_syntax.label_value_problems(value)
    )


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 60 else f"'{text[:60]}…'"
