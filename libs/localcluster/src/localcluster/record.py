"""The record of a cluster between two commands: one JSON file in its state folder.

Rule: the record helps to use a cluster; removing one must work without it (a crash may come before it is written).
"""

from pathlib import Path

import msgspec

from localcluster.processes import ProcessId
from localcluster.settings import Layout


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that `up` made or adopted."""

    name: str
    driver: str
    server: str
    kubeconfig: Path
    """Works from this machine."""
    inner_kubeconfig: Path
    """Works from inside the cluster's network; the same as `kubeconfig` where there is no such network."""
    gateway: bool = False
    processes: tuple[ProcessId, ...] = ()
    binaries: dict[str, Path] = {}


def write(layout: Layout, record: Record) -> None:
    """Keep the record; a reader sees the old one or the new one, never half of one."""
    layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = layout.record.with_suffix(".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(record, enc_hook=str)))
    draft.replace(layout.record)


def read(layout: Layout) -> Record | None:
    """Return the record, or None where there is no cluster; a damaged file counts as none."""
    try:
        return msgspec.json.decode(layout.record.read_bytes(), type=Record, dec_hook=_decode)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _decode(kind: type[Path], value: str) -> Path:
    return kind(value)
