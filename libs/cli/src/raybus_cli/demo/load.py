"""The load's manifest for one run: its target, rate and length. Pure."""

from typing import Any

import msgspec
import yaml


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the pod of `deploy/demo/load` is asked to send."""

    url: str = "http://greeter-serve-svc:8000/"
    rate: float = 40.0
    """Short requests a second."""
    think: str = "8"
    """Seconds that a slow request takes: `8`, or a range such as `5-20`."""
    think_every: float = 2.0
    """Seconds between slow requests."""
    retry: str = "standard"
    """`none`: nothing is ever sent a second time."""
    seconds: float = 600.0
    """The longest run."""


def manifest(text: str, load: Load) -> str:
    """Return the manifest, as `kubectl kustomize` printed it, with the pod's arguments set."""
    documents: list[dict[str, Any]] = [each for each in yaml.safe_load_all(text) if each]
    for document in documents:
        if document["kind"] == "Pod":
            given = msgspec.structs.asdict(load)
            arguments = [
                argument for name, value in given.items() for argument in (f"--{name.replace('_', '-')}", str(value))
            ]
            document["spec"]["containers"][0]["args"] = arguments
    return yaml.safe_dump_all(documents, sort_keys=False)
