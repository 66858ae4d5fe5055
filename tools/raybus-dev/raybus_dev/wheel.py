"""Builds the wheel of the command `raybus`, and the constraints for installing it.

As a program it builds the wheel into a folder, and prints its path.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCE_ONLY: Final = "nkeys"
"""The only dependency that PyPI has in source form only.

It is one Python file, which needs no compiler.
"""
CHECKOUT: Final = Path(__file__).parents[3]
UV: Final = Path(sys.executable).with_name("uv")


def build_wheel(checkout: Path, folder: Path) -> Path:
    """Build the wheel of the command `raybus` into `folder`.

    Return its path. Nothing is downloaded.
    """
    command = [UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--offline"]
    subprocess.run(
        [*command, "--python", sys.executable, "--out-dir", folder, checkout / "deploy/wheel"],
        check=True,
    )
    (folder / ".gitignore").unlink(missing_ok=True)
    (wheel,) = folder.glob("raybus-*.whl")
    return wheel


def export_constraints(checkout: Path, file: Path) -> Path:
    """Write the versions of uv.lock into `file` as constraints for pip. Return `file`."""
    command = [UV, "export", "--quiet", "--frozen", "--offline", "--no-dev", "--no-emit-workspace"]
    subprocess.run(
        [*command, "--no-hashes", "--no-header", "--no-annotate", "--output-file", file],
        cwd=checkout,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return file


def main() -> None:
    """Build the wheel of this checkout into the folder on the command line."""
    parser = argparse.ArgumentParser(description="Build the wheel of the command `raybus`.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    sys.stdout.write(f"{build_wheel(CHECKOUT, folder)}\n")


if __name__ == "__main__":
    main()
