"""Whether a Serve config must be sent to a cluster, and which one.

The active cluster keeps the config that it was given for as long as another cluster is pending; the durable record knows it.
Spec rayservice §12.2, §12.7, §17.11; acceptance 25, 37, 69, 70, 78.
"""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from common import errors
from common.ray import serve_config
from common.ray.view import ServeView, head_is_ready

SETTLING: Final = timedelta(seconds=5)
"""After a PUT Serve may show no application for a moment; that is no reason to send the config again."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to send a config, and why (not)."""

    config: str | None = None
    note: str


def decide(view: ServeView, goal: str, *, frozen: bool, now: datetime) -> Submission:
    """Return what to send to a cluster now; `frozen` keeps it on the config that it has."""
    wanted = view.given if frozen else goal
    if wanted is None:
        return Submission(note="nobody recorded what this cluster serves, so it stays as it is")
    obstacle = _obstacle(view, wanted, now=now)
    if obstacle is not None:
        return Submission(note=obstacle)
    why = _reason(view, wanted, now=now)
    if why is None:
        return Submission(note="the cluster has this config")
    return Submission(config=wanted, note=why)


@lru_cache(maxsize=1024)
def problem(config: str) -> str | None:
    """Return what is wrong with a config before anybody is asked; every look asks, and YAML is slow to read."""
    try:
        serve_config.to_json(config)
    except errors.InvalidSpec as error:
        return str(error)
    return None


def _obstacle(view: ServeView, wanted: str, *, now: datetime) -> str | None:
    """Return why nothing can be sent now."""
    if serve_config.is_empty(wanted):
        return "the Serve config is empty"
    if not head_is_ready(view.cluster):
        return "the head pod is not ready"
    if view.serve.details is None:
        return view.serve.problem or "the dashboard was not asked yet"
    if view.refused is not None and view.refused.config == wanted and not view.refused.is_due(now):
        return f"the config was refused: {view.refused.text}"
    return problem(wanted)


def _reason(view: ServeView, wanted: str, *, now: datetime) -> str | None:
    if view.given is None:
        return "nothing is recorded for the cluster"
    if view.given != wanted:
        return "the config differs from the one that the cluster has"
    if view.serve.details is not None and not view.serve.details.applications:
        if view.put_at is not None and now < view.put_at + SETTLING:
            return None
        return "the cluster has no application; its head may have been replaced"
    return None
