"""What the evidence of an upgrade is about: the pending cluster and the Serve config that runs on it (ADR 40). Pure.

A pending cluster gets an edited `serveConfigV2` in place. Warm-ups, answers of webhooks, requests that were counted, approvals and the time
that a step has lasted are about the config before, and count no more.
"""

import hashlib

import msgspec

from common.ray import deployed_config, serve_status
from common.ray.serve_status import ServeDetails
from common.ray.view import ServeView


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The version that an upgrade may give the traffic to."""

    cluster_uid: str
    """Of the pending RayCluster."""
    config: str
    """Digest of the Serve config that Ray reports as deployed; it can be compared with others, and not read."""


def candidate_of(view: ServeView, known: str | None = None) -> Candidate | None:
    """Return what runs on a pending cluster; None while that changes, or was never observed.

    `known` is the digest that is on record. It stays while the dashboard is silent, for silence changes no config, and while
    applications that run with it are unhealthy. Another config is a candidate once all applications run with it: until then
    requests may reach replicas of the config before.
    """
    details = view.serve.details
    if details is None or not details.applications:
        return None if known is None else _candidate(view, known)
    digest = _digest(details, view.given)
    if digest != known and not serve_status.is_running(details):
        return None
    return _candidate(view, digest)


def _candidate(view: ServeView, config: str) -> Candidate:
    return Candidate(cluster_uid=view.cluster.metadata.uid, config=config)


def _digest(details: ServeDetails, given: str | None) -> str:
    """Return a digest of what Serve reports; where it reports the config of an application not at all, also of the recorded config."""
    reported = deployed_config.configs(details)
    recorded = given if None in reported.values() else None
    return hashlib.sha256(msgspec.json.encode((reported, recorded), order="sorted")).hexdigest()[
        :32
    ]
