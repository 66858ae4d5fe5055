"""Stores some hundred cases with KubeRay's outcomes, so that `make check` needs no Go."""

import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from common.api.opaque import Json
from parity.cases import Case
from parity.options import Options

if TYPE_CHECKING:
    from parity.judging import Judge

FILE: Final = Path(__file__).parents[3] / "tests" / "golden" / "parity" / "recorded.json.xz"
OPTIONS: Final = FILE.with_name("options.json")
"""The options of KubeRay's operator at the recorded version."""


class RecordedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case, and KubeRay's outcome of each round, normalized for the comparison."""

    case: Case
    theirs: list[Json]


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """All recorded cases, and the version of KubeRay that they were recorded with."""

    version: str
    release: str
    cases: list[RecordedCase]


def write(judge: "Judge", *, version: str, release: str, seed: int, most: int) -> Path:
    """Record the first `most` cases of a seed. Return the path of the file."""
    cases = {number: judge.draw(seed, number) for number in range(most)}
    theirs = judge.theirs(cases, {number: judge.ours(case) for number, case in cases.items()})
    records = [RecordedCase(case=case, theirs=theirs[number]) for number, case in cases.items()]
    text = msgspec.json.encode(
        Recording(version=version, release=release, cases=records), order="deterministic"
    )
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_bytes(lzma.compress(text, preset=9))
    return FILE


def read() -> Recording:
    """Read the recorded cases."""
    return msgspec.json.decode(lzma.decompress(FILE.read_bytes()), type=Recording)


def write_options(options: Options) -> Path:
    """Record the options of KubeRay's operator. Return the path of the file."""
    OPTIONS.write_bytes(msgspec.json.format(msgspec.json.encode(options)) + b"\n")
    return OPTIONS


def read_options() -> Options:
    """Read the recorded options of KubeRay's operator."""
    return msgspec.json.decode(OPTIONS.read_bytes(), type=Options)
