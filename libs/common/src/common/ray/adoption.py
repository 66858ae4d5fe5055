"""The config that a cluster serves: its newest record, or what Serve reports where the records leave that open (spec rayservice §12.7, ADR 5).

A service that KubeRay managed before has no record. A record of a PUT without a known outcome is only an intent: what Serve reports as
deployed decides at each reconcile whether Ray executed it, since a PUT may be executed long after its sender is gone.
"""

import msgspec

from common.api.opaque import Json
from common.ray import deployed_config, revision
from common.ray.deployed_config import Match
from common.ray.revision import Given, Outcome, Revision
from common.ray.serve_status import ServeDetails


def current(records: list[Revision], details: ServeDetails | None) -> Given | None:
    """Return what a cluster has, from its records (newest first) and from what Serve reports; None when it is unknown."""
    candidates = revision.open_ones(records)
    if candidates and candidates[0].outcome is Outcome.ACCEPTED:
        return candidates[0].data
    if details is not None and details.applications:
        found = [deployed_config.compare(each.data.serve_config, details).match for each in candidates]
        if Match.SAME in found:
            return candidates[found.index(Match.SAME)].data
    possible = [each for each in candidates if each.outcome is not Outcome.REFUSED]
    if possible and possible[0].outcome is Outcome.ACCEPTED:
        return possible[0].data
    if details is None:
        return None
    if (
        not details.applications
    ):  # the next PUT decides; Ray refuses what it cannot run, and then the one before is left
        return possible[0].data if possible else None
    return _adopted(details, possible)


def reported_config(details: ServeDetails) -> str | None:
    """Return the config that Serve runs with; None unless each application came by a config."""
    apps = [config for _, config in sorted(deployed_config.configs(details).items())]
    if not apps or None in apps or deployed_config.is_redacted(apps):
        return None
    options = {
        "proxy_location": details.proxy_location,
        "http_options": details.http_options,
        "grpc_options": details.grpc_options,
    }
    config: Json = {key: value for key, value in options.items() if value is not None}
    return msgspec.json.encode({**config, "applications": apps}, order="sorted").decode()


def _adopted(details: ServeDetails, possible: list[Revision]) -> Given | None:
    """Return what Serve reports, with the cluster's other facts from the oldest record that is still possible."""
    config = reported_config(details)
    if config is None:
        return None
    known = possible[-1].data if possible else Given()
    return msgspec.structs.replace(known, serve_config=config)
