"""Programs and manifests that `make prepare` built: found, or the test fails. A test run neither builds nor skips what is missing."""

from pathlib import Path
from typing import Final

from localcluster import binaries
from localcluster.settings import Settings

REMEDY: Final = (
    "run `make prepare`, for long-running tests `make prepare-long-running`, for other controllers `make prepare-third-party`, "
    "for end-to-end tests on demand `make prepare-node-all`"
)


def prepared(name: str) -> Path:
    """Return where a program, or a folder of manifests, lies.

    Raises:
        AssertionError: It was not built.
    """
    found, _ = binaries.locate([name], Settings.from_environment())
    assert name in found, f"{name} is not built: {REMEDY}"
    return found[name]
