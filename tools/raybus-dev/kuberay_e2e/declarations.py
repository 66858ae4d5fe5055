"""The intended changes of KubeRay's suites and the tests that cannot pass, from `suites.yaml`.

A patch replaces one text of a file of the checkout. In the suites on the node it changes images,
names, addresses and requests for processors. In the suite controllers/ray it starts and stops
raybus in place of KubeRay's manager. No patch changes an assertion about what KubeRay does. A patch
whose text does not occur exactly `count` times fails the run, because then the checkout has
changed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from localcluster.errors import ClusterError

FILE: Final = Path(__file__).with_name("suites.yaml")


class SourcePatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replaced text, and the reason."""

    file: str
    """Path in the folder ray-operator."""
    find: str
    replace: str
    reason: str
    count: int = 1
    """Number of occurrences; all are replaced."""


class TestVariable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment variable that KubeRay's suites read, and the reason for its value."""

    name: str
    value: str
    reason: str


class Exemption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test that is skipped or fails, and the reason."""

    test: str
    reason: str


class Declarations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `suites.yaml`."""

    environment: list[TestVariable]
    patches: list[SourcePatch]
    exemptions: list[Exemption]

    def find_reason(self, test: str) -> str:
        """Return why a test does not pass; empty if it must pass."""
        return next((known.reason for known in self.exemptions if known.test == test), "")

    def list_patches(self, suite: str) -> list[SourcePatch]:
        """Return the patches of a suite: those of its own files and of the files that it shares.

        A suite is a folder of ray-operator, or of its folder `test`, whose suites share a package.
        """
        folders = (f"{suite}/",) if "/" in suite else (f"test/{suite}/", "test/support/")
        return [patch for patch in self.patches if patch.file.startswith(folders)]


def load(path: Path = FILE) -> Declarations:
    """Read the declarations."""
    return msgspec.yaml.decode(path.read_bytes(), type=Declarations)


def apply(text: str, patches: Iterable[SourcePatch]) -> str:
    """Return a file's text with its patches; raise `ClusterError` if one does not fit."""
    for patch in patches:
        if (found := text.count(patch.find)) != patch.count:
            raise ClusterError(
                f"{patch.file} has {found} times the text {patch.find!r}, expected {patch.count}: "
                "adapt suites.yaml to this checkout of KubeRay"
            )
        text = text.replace(patch.find, patch.replace)
    return text


def count_lines(patches: Sequence[SourcePatch]) -> int:
    """Return the number of lines that patches change."""
    return sum(patch.count * len(patch.find.splitlines()) for patch in patches)
