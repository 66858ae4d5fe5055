"""Writes the CRD files, or checks that they match the API types.

python -m crd_generator [--check] [--out deploy/crds]
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from crd_generator import manifest
from crd_generator.schema import Schema

ANNOTATION_LIMIT: Final = 262_144
"""Kubernetes' limit for all annotations of an object together, in bytes.

`kubectl apply` stores the object's compact JSON in an annotation.
"""


def main(arguments: list[str] | None = None) -> int:
    """Write or check all CRD files. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m crd_generator", description="Write the CRDs of our API types."
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail when a file is stale"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("deploy/crds"),
        help="folder of the files (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    faults = [
        _process(options.out / name, definition, check=options.check)
        for name, definition in manifest.list_definitions().items()
    ]
    for fault in filter(None, faults):
        sys.stderr.write(f"{fault}\n")
    return 1 if any(faults) else 0


def compact_size(definition: Schema) -> int:
    """Return the size of the definition as compact JSON, the form that kubectl stores."""
    return len(json.dumps(definition, separators=(",", ":")).encode())


def _process(path: Path, definition: Schema, *, check: bool) -> str:
    """Write or check one file. Return an error message, empty if there is no error."""
    size = compact_size(definition)
    if size >= ANNOTATION_LIMIT:
        return (
            f"{path}: {size} bytes as compact JSON, kubectl apply takes at most "
            f"{ANNOTATION_LIMIT - 1}"
        )
    wanted = manifest.render(definition)
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted, encoding="utf-8")
        sys.stdout.write(f"wrote {path}: {size} bytes as compact JSON\n")
        return ""
    if not path.is_file():
        return f"{path} is missing; run: python -m crd_generator"
    if path.read_text(encoding="utf-8") != wanted:
        return f"{path} is stale; run: python -m crd_generator"
    return ""


if __name__ == "__main__":
    sys.exit(main())
