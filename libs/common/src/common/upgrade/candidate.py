"""The version under evaluation: the pending cluster and the Serve config that it runs (ADR 40).

If the user edits `serveConfigV2` during an upgrade, the pending cluster gets the new config. Then
warm-up, webhook answers, request counts, approvals and the hold time of the step are discarded,
because they belong to the previous config.
"""

import hashlib

import msgspec

from common.ray import deployed_config, serve_status
from common.ray.serve_status import ServeDetails
from common.ray.view import ServeView


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A version that an upgrade may promote."""

    cluster_uid: str
    """UID of the pending RayCluster."""
    config: str
    """Digest of the Serve config that Ray reports as deployed, to detect a different config."""


def candidate_of(view: ServeView, known: str | None = None) -> Candidate | None:
    """Return the pending cluster and the digest of the Serve config that runs on it.

    None if the config is changing or was never observed. `known` is the digest that was recorded
    last. It stays valid while the dashboard does not answer or applications are unhealthy. If Ray
    reports a different config, this config becomes the candidate only when all applications run;
    until then, replicas of the previous config may still answer requests. Applications that are not
    in the config do not count (ADR 41).
    """
    details = view.declared
    if details is None or not details.applications:
        return None if known is None else _candidate(view, known)
    digest = _digest(details, view.given)
    if digest != known and not serve_status.is_running(details):
        return None
    return _candidate(view, digest)


def _candidate(view: ServeView, config: str) -> Candidate:
    return Candidate(cluster_uid=view.cluster.metadata.uid, config=config)


def _digest(details: ServeDetails, given: str | None) -> str:
    """Return a digest of the configs that Serve reports for its applications.

    If some application has no reported config, the recorded config (`given`) is digested, too.
    """
    reported = deployed_config.configs(details)
    recorded = given if None in reported.values() else None
    return hashlib.sha256(msgspec.json.encode((reported, recorded), order="sorted")).hexdigest()[
        :32
    ]
