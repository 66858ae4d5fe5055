"""A test is skipped only for a reason that no installation removes.

If something is merely missing, the test fails and names `make prepare`.
"""

import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
SKIP: Final = re.compile(
    r"(?:pytest\.skip\(|skipif\([^)]*\)?.*?reason=)\s*f?\"([^\"]*)\"", re.DOTALL
)
ALLOWED: Final = {
    "chroot and mounts need root",
    "a node needs root",
    "the network of our own needs root",
    "only root mounts a file system",
    "the fake has no namespaces",
    "the fake sends no requests",
    "this local cluster has no gateway; the driver built has",
    "PEER and PEER_CRDS name no other operator",
    "COLLECTOR names no collector of KubeRay",
}


def test_every_reason_to_skip_is_one_that_no_installation_removes() -> None:
    found = {
        reason: path.name
        for path in sorted(TESTS.rglob("test_*.py"))
        + sorted(TESTS.rglob("*/conftest.py"))
        + [TESTS / "integration/isolated.py"]
        if path != Path(__file__)
        for reason in SKIP.findall(path.read_text())
    }
    assert {reason: where for reason, where in found.items() if reason not in ALLOWED} == {}
    assert ALLOWED - found.keys() == set()


def test_no_test_skips_without_a_reason_that_can_be_read_here() -> None:
    for path in TESTS.rglob("*.py"):
        text = path.read_text()
        if path == Path(__file__):
            continue
        marks = len(
            re.findall(r"pytest\.skip\(|mark\.skipif\(|importorskip\(|mark\.skip\b(?!if)", text)
        )
        assert marks == len(SKIP.findall(text)), (
            f"{path}: write the reason as a literal, so that this test can read it"
        )
