"""Serve configs of the simulation, as texts that can be compared."""

from functools import lru_cache

import msgspec

from common.api.opaque import Json
from common.ray import serve_config


def config_of(put: Json) -> str:
    return msgspec.json.encode(
        {key: value for key, value in put.items() if key != "target_capacity"}
    ).decode()


def image_of(config: Json) -> str:
    return str(config["headGroupSpec"]["template"]["spec"]["containers"][0]["image"])


@lru_cache(maxsize=256)
def read_config(config: str) -> str:
    return config_of(serve_config.parse(config).to_json())


def short(config: str) -> str:
    app: Json = msgspec.json.decode(config)["applications"][0]
    return str(app.get("runtime_env", {}).get("env_vars", {}).get("MESSAGE", "?"))
