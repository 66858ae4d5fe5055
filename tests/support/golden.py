"""Text that is stored in a golden file, so that a change of behaviour appears in review as a diff."""

from pathlib import Path

import msgspec


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """The files under tests/golden."""

    root: Path
    update: bool

    def check(self, name: str, text: str) -> None:
        """Fail unless the file holds this text; with --update-golden, write it."""
        path = self.root / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), (
            f"{name} is missing: run pytest --update-golden and read what it writes"
        )
        assert text == path.read_text(), (
            f"{name} differs: if that is meant, run pytest --update-golden"
        )
