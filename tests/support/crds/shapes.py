"""The shape of a CRD, that is its fields with their types, as digests, so that the shapes of
KubeRay's CRDs fit into a small golden file.

PYTHONPATH=tests python -m support.crds.shapes FOLDER > tests/golden/kuberay/crd_shapes.json

with the folder of KubeRay's CRDs, `helm-chart/kuberay-operator/crds`.
"""

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import yaml

FILES = tuple(f"ray.io_ray{kind}.yaml" for kind in ("clusters", "services", "jobs", "cronjobs"))
NAMED_DEPTH = 3
"""Maximum depth of fields with their own digest, so that the test can name the field that
differs."""

Shapes = dict[str, str]


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field below a schema with its type; `open` for fields whose content the API
    server does not check.
    """
    kind = "intOrString" if schema.get("x-kubernetes-int-or-string") else schema.get("type", "open")
    is_open = (
        schema.get("x-kubernetes-preserve-unknown-fields")
        or schema.get("additionalProperties") is True
    )
    yield path, "open" if is_open else kind
    for name, field in schema.get("properties", {}).items():
        yield from fields(field, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], path + mark)


def of(definition: dict[str, Any]) -> dict[str, Shapes]:
    """Return the digests of a CRD's fields for each version."""
    return {
        version["name"]: _digests(sorted(fields(version["schema"]["openAPIV3Schema"])))
        for version in definition["spec"]["versions"]
    }


def _digests(found: list[tuple[str, str]]) -> Shapes:
    below: dict[str, list[str]] = {}
    for path, kind in found:
        named = ".".join(path.split(".")[: NAMED_DEPTH + 1])
        below.setdefault(named, []).append(f"{path}:{kind}")
    return {
        named: sha256("\n".join(lines).encode()).hexdigest()[:12] for named, lines in below.items()
    }


if __name__ == "__main__":
    all_shapes = {
        name: of(yaml.safe_load((Path(sys.argv[1]) / name).read_text())) for name in FILES
    }
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(all_shapes)).decode() + "\n")
