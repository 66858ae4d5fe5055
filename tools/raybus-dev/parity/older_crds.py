"""Removes from a case the fields that the CRDs of an older KubeRay lack, as its API server does."""

import copy
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from common.api.opaque import Body, Json
from parity.cases import Case
from support import crd_schema

OPEN: Final[Json] = {"x-kubernetes-preserve-unknown-fields": True}
"""The schema of a value with any fields."""


def prune_case(case: Case, folder: Path) -> Case:
    """Return a copy of a case without the fields that the CRDs in `folder` do not have.

    The fields are removed from the objects of the case and from the edits of its rounds.
    """
    return msgspec.structs.replace(
        case,
        objects=[_prune(body, folder) for body in case.objects],
        rounds=[
            [pruned for step in steps if (pruned := _prune_step(step, folder)) is not None]
            for steps in case.rounds
        ],
        service=case.service and _prune(case.service, folder),
        job=case.job and _prune(case.job, folder),
        cron_job=case.cron_job and _prune(case.cron_job, folder),
    )


def _prune(body: Body, folder: Path) -> Body:
    """Return an object of `ray.io` with a pruned spec; other objects are returned as they are."""
    if not body["kind"].startswith("Ray"):
        return body
    schema = crd_schema.of(body["kind"], folder=folder)
    return {**body, "spec": crd_schema.pruned(body.get("spec"), schema)}


def _prune_step(step: Json, folder: Path) -> Json | None:
    """Return an edit of a RayCluster with a pruned value; None if its path has an unknown field."""
    if step["do"] != "edit" or step["path"][0] != "spec":
        return step
    schema: Json = crd_schema.of("RayCluster", folder=folder)
    for key in cast("list[str | int]", step["path"])[1:]:
        is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
        fields: Json = schema.get("properties", {})
        rest = schema.get("additionalProperties")
        inner: Any = schema.get("items") if isinstance(key, int) else fields.get(key, rest)
        if inner is None and not is_open:
            return None
        schema = cast("Json", inner if isinstance(inner, dict) else OPEN)
    return {**copy.deepcopy(step), "value": crd_schema.pruned(step.get("value"), schema)}
