"""The manifests that a command is given, as kubectl takes them: files, directories, standard input, a kustomization."""

import shutil
import subprocess
from pathlib import Path
from typing import Annotated, Final

import typer

from common import errors
from raybus_cli.manifests import reading
from raybus_cli.manifests.reading import Document

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
"""Of the files that are read in a directory, as by kubectl."""
KUSTOMIZE_SECONDS: Final = 60.0

FilenameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filename", "-f", help="Manifest, or a directory of manifests; - for standard input. May be repeated."
    ),
]
RecursiveOption = Annotated[
    bool, typer.Option("--recursive", "-R", help="With a directory: also the directories below it.")
]
KustomizeOption = Annotated[
    Path | None, typer.Option("--kustomize", "-k", help="Directory of a kustomization; needs kustomize or kubectl.")
]


def read(files: list[str] | None, kustomize: Path | None, *, recursive: bool = False) -> list[Document]:
    """Return all documents; raise `InvalidSpec` when there are none, or when one of them cannot be read."""
    if kustomize is not None:
        if files:
            raise errors.InvalidSpec("-f and -k exclude each other: name manifests with -f or a kustomization with -k")
        return reading.parse(_built(kustomize), str(kustomize))
    if not files:
        raise errors.InvalidSpec("no manifest is given: name one with -f FILE, a directory with -f DIR or -k DIR")
    return [document for file in files for each in _files(file, recursive=recursive) for document in reading.read(each)]


def _files(given: str, *, recursive: bool) -> list[str]:
    """Return the files of a directory in the order of their paths; a file itself."""
    if given == reading.STDIN or not Path(given).is_dir():
        return [given]
    inside = Path(given).rglob("*") if recursive else Path(given).iterdir()
    found = sorted(str(each) for each in inside if each.suffix in SUFFIXES and each.is_file())
    if not found:
        below = "" if recursive else "; add -R for the directories below it"
        raise errors.InvalidSpec(f"directory {given} has no file that ends in .yaml, .yml or .json{below}")
    return found


def _built(directory: Path) -> str:
    """Return what a kustomization builds, made by the user's own program."""
    programs = (["kustomize", "build"], ["kubectl", "kustomize"])
    argv = next((each for each in programs if shutil.which(each[0])), None)
    if argv is None:
        raise errors.InvalidSpec("-k needs kustomize or kubectl on the PATH: install one, or pipe its output into -f -")
    try:
        done = subprocess.run(
            [*argv, str(directory)], capture_output=True, text=True, timeout=KUSTOMIZE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as problem:
        raise errors.InvalidSpec(f"{' '.join(argv)} {directory} did not end in {KUSTOMIZE_SECONDS:g} s") from problem
    if done.returncode:
        raise errors.InvalidSpec(f"{' '.join(argv)} {directory}: {done.stderr.strip() or 'failed without a message'}")
    return done.stdout
