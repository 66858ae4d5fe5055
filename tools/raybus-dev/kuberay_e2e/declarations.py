"""The changes of KubeRay's suites and the tests that cannot pass, from `suites.yaml`.

A patch replaces one text of a file of KubeRay. In the suites on the node, patches change images,
names, addresses and requests for processors. In the suite controllers/ray, they start and stop
raybus in place of KubeRay's manager. No patch changes an assertion about what KubeRay does. A patch
whose text does not occur exactly `count` times fails the run, because KubeRay's code has changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from localcluster.errors import ClusterError

FILE: Final = Path(__file__).with_name("suites.yaml")


class SourcePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text that is replaced, and the reason."""

    file: str
    """Path of the file in the folder ray-operator; a pattern, as `*.yaml`, for several files."""
    find: str
    replace: str
    reason: str
    count: int = 1
    """Number of occurrences of `find` in all these files; all are replaced."""


class TestVariable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment variable that KubeRay's suites read, and the reason for its value."""

    name: str
    value: str
    reason: str


class Exemption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test that may be skipped or fail, and the reason."""

    test: str
    reason: str


class Declarations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `suites.yaml`."""

    environment: list[TestVariable]
    patches: list[SourcePatch]
    exemptions: list[Exemption]

    def find_reason(self, test: str) -> str:
        """Return the reason why a test cannot pass; empty if it must pass."""
        return next((known.reason for known in self.exemptions if known.test == test), "")

    def list_patches(self, suite: str) -> list[SourcePatch]:
        """Return the patches of a suite's own files, and of files that it shares with other suites.

        A suite is a folder of ray-operator, or of ray-operator/test. Suites in `test` share a
        package.
        """
        folders = (f"{suite}/",) if "/" in suite else (f"test/{suite}/", "test/support/")
        return [patch for patch in self.patches if patch.file.startswith(folders)]


def load(path: Path = FILE) -> Declarations:
    """Read `suites.yaml`."""
    return msgspec.yaml.decode(path.read_bytes(), type=Declarations)


def apply(folder: Path, patch: SourcePatch) -> None:
    """Patch the files in a copy of the folder ray-operator.

    Raises `ClusterError` if the patch does not fit.
    """
    texts = {path: path.read_text() for path in sorted(folder.glob(patch.file))}
    if (found := sum(text.count(patch.find) for text in texts.values())) != patch.count:
        raise ClusterError(
            f"{patch.file} has {found} times the text {patch.find!r}, expected {patch.count}: "
            "adapt suites.yaml to this checkout of KubeRay"
        )
    for path, text in texts.items():
        path.write_text(text.replace(patch.find, patch.replace))


def count_lines(patches: Sequence[SourcePatch]) -> int:
    """Return the number of lines that the patches change."""
    return sum(patch.count * len(patch.find.splitlines()) for patch in patches)
