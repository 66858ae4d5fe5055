"""Programs and manifests that `make prepare` built.

If one is missing, the test fails: a test run neither builds nor skips anything.
"""

from pathlib import Path
from typing import Final

from localcluster import binaries
from localcluster.settings import LocalSettings

REMEDY: Final = (
    "run `make prepare`, for long-running tests `make prepare-long-running`, for other controllers `make prepare-third-party`, "
    "for gateways `make prepare-gateways`, for end-to-end tests on demand `make prepare-node-all`"
)


def prepared(name: str) -> Path:
    """Return the path of a program or of a folder of manifests.

    Raises:
    AssertionError: It was not built.
    """
    found, _ = binaries.locate([name], LocalSettings.from_environment())
    assert name in found, f"{name} is not built: {REMEDY}"
    return found[name]
