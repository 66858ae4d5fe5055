"""What a cluster serves that nobody recorded: Serve tells the config of each application as it was sent (spec rayservice §12.7).

A service that KubeRay looked after has no record. Without one its active cluster could not get its capacity back in a rollback:
capacity is part of a config that has to be sent whole.
"""

import msgspec

from common.api.opaque import Json
from common.ray.revision import Given
from common.ray.serve_status import ServeDetails


def config_of(record: Given | None, details: ServeDetails | None) -> str | None:
    """Return the Serve config of a cluster: the recorded one, else what Serve tells, None when that is not all of it."""
    if record is not None:
        return record.serve_config
    return None if details is None else told(details)


def told(details: ServeDetails) -> str | None:
    """Return the config that Serve runs with; None unless each application came by a config."""
    apps = [each.deployed_app_config for _, each in sorted(details.applications.items())]
    if not apps or None in apps:
        return None
    options = {
        "proxy_location": details.proxy_location,
        "http_options": details.http_options,
        "grpc_options": details.grpc_options,
    }
    config: Json = {key: value for key, value in options.items() if value is not None}
    return msgspec.json.encode({**config, "applications": apps}, order="sorted").decode()
