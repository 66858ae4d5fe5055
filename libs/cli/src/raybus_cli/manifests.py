"""Reads the manifests that are passed to a command by `-f` or `-k`, in YAML or JSON.

The line number of every field is kept, so that findings can point to it.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec
import typer
import yaml

from common import errors
from common.api.opaque import Json

STDIN: Final = "-"
FieldPath = tuple[str | int, ...]
"""Path of a field from the top of a document: keys and list indexes."""


class ManifestDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One Kubernetes object of a manifest file."""

    file: str
    body: Json
    lines: dict[FieldPath, int]
    repeated: tuple[FieldPath, ...] = ()
    """Keys that occur twice in one mapping. YAML keeps the last value and reports no error."""

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))

    @property
    def name(self) -> str:
        return str(_get_metadata(self.body).get("name", ""))

    @property
    def namespace(self) -> str | None:
        """`metadata.namespace` of the object, if the manifest sets it."""
        return cast("str | None", _get_metadata(self.body).get("namespace"))

    def find_line(self, path: FieldPath) -> int:
        """Return the line number of a field, or of its nearest parent that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read(file: str) -> list[ManifestDocument]:
    """Read the documents of a file, or of standard input for `-`.

    Raises `InvalidSpec` if the file cannot be read or is not YAML. The error names the file and,
    where possible, the line.
    """
    return parse(_read_text(file), "standard input" if file == STDIN else file)


def parse(text: str, file: str) -> list[ManifestDocument]:
    """Parse the documents in a text; `file` is its name in errors.

    Raises `InvalidSpec` if the text is not YAML or a document is not an object.
    """
    documents: list[ManifestDocument] = []
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as problem:  # a character that YAML does not permit
        raise errors.InvalidSpec(f"{file}: not YAML: {problem}") from problem
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            # PyYAML is untyped.
            body: object = loader.construct_document(node)  # pyright: ignore[reportUnknownMemberType]
            if body is None:
                continue
            if not isinstance(body, dict):
                raise errors.InvalidSpec(
                    f"{file}:{node.start_mark.line + 1}: not an object; write apiVersion, kind, …"
                )
            lines: dict[FieldPath, int] = {}
            repeated: list[FieldPath] = []
            _record_lines(node, (), lines, repeated)
            document = ManifestDocument(
                file=file, body=cast("Json", body), lines=lines, repeated=tuple(repeated)
            )
            documents += _split_list(document)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        where = f"{file}:{mark.line + 1}" if mark is not None else file
        raise errors.InvalidSpec(f"{where}: not YAML: {problem.problem}") from problem
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        raise errors.InvalidSpec(f"{file}: not YAML: {problem}") from problem
    finally:
        loader.dispose()
    return documents


def _read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise errors.InvalidSpec(
            f"cannot read {file}: {why}; name a manifest with -f, or - for standard input"
        ) from problem


def _split_list(document: ManifestDocument) -> list[ManifestDocument]:
    """Return the members of a List, or the document itself if it is not a List."""
    items = document.body.get("items")
    if not document.kind.endswith("List") or not isinstance(items, list):
        return [document]
    return [
        ManifestDocument(
            file=document.file,
            body=cast("Json", body),
            lines={
                path[2:]: line
                for path, line in document.lines.items()
                if path[:2] == ("items", number)
            },
        )
        for number, body in enumerate(cast("list[object]", items))
        if isinstance(body, dict)
    ]


def _record_lines(
    node: Any, path: FieldPath, lines: dict[FieldPath, int], repeated: list[FieldPath]
) -> None:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in cast("list[tuple[Any, Any]]", node.value):
            below = (*path, str(key.value))
            if below in lines:
                repeated.append(below)
            _record_lines(value, below, lines, repeated)
            lines[below] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(cast("list[Any]", node.value)):
            _record_lines(value, (*path, number), lines, repeated)


def _get_metadata(body: Json) -> Json:
    meta: object = body.get("metadata")
    return cast("Json", meta) if isinstance(meta, dict) else {}


def format_path(path: FieldPath) -> str:
    """Format a field path as users write it: `spec.workerGroupSpecs[0].replicas`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
"""Suffixes of the files that are read from a directory, as kubectl does."""
KUSTOMIZE_SECONDS: Final = 60.0

FilenameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        help="Manifest, or a directory of manifests; - for standard input. May be repeated.",
    ),
]
RecursiveOption = Annotated[
    bool, typer.Option("--recursive", "-R", help="With a directory: also the directories below it.")
]
KustomizeOption = Annotated[
    Path | None,
    typer.Option(
        "--kustomize", "-k", help="Directory of a kustomization; needs kustomize or kubectl."
    ),
]


def read_all(
    files: list[str] | None, kustomize: Path | None, *, recursive: bool = False
) -> list[ManifestDocument]:
    """Return the documents of all files and directories, or of a kustomization.

    With `recursive`, subdirectories are read as well. Raises `InvalidSpec` if both files and a
    kustomization are given, if neither is given, or if one of them cannot be read.
    """
    if kustomize is not None:
        if files:
            raise errors.InvalidSpec(
                "-f and -k exclude each other: name manifests with -f or a kustomization with -k"
            )
        return parse(_build_kustomization(kustomize), str(kustomize))
    if not files:
        raise errors.InvalidSpec(
            "no manifest is given: name one with -f FILE, a directory with -f DIR or -k DIR"
        )
    return [
        document
        for file in files
        for path in _list_files(file, recursive=recursive)
        for document in read(path)
    ]


def _list_files(given: str, *, recursive: bool) -> list[str]:
    """Return the manifest files of a directory, sorted by path, or the path of a file itself."""
    if given == STDIN or not Path(given).is_dir():
        return [given]
    inside = Path(given).rglob("*") if recursive else Path(given).iterdir()
    paths = sorted(str(path) for path in inside if path.suffix in SUFFIXES and path.is_file())
    if not paths:
        below = "" if recursive else "; add -R for the directories below it"
        raise errors.InvalidSpec(
            f"directory {given} has no file that ends in .yaml, .yml or .json{below}"
        )
    return paths


def _build_kustomization(directory: Path) -> str:
    """Run the user's `kustomize build` or `kubectl kustomize` and return its output."""
    programs = (["kustomize", "build"], ["kubectl", "kustomize"])
    argv = next((program for program in programs if shutil.which(program[0])), None)
    if argv is None:
        raise errors.InvalidSpec(
            "-k needs kustomize or kubectl on the PATH: install one, or pipe its output into -f -"
        )
    try:
        done = subprocess.run(
            [*argv, str(directory)],
            capture_output=True,
            text=True,
            timeout=KUSTOMIZE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as problem:
        raise errors.InvalidSpec(
            f"{' '.join(argv)} {directory} did not end in {KUSTOMIZE_SECONDS:g} s"
        ) from problem
    if done.returncode:
        raise errors.InvalidSpec(
            f"{' '.join(argv)} {directory}: {done.stderr.strip() or 'failed without a message'}"
        )
    return done.stdout
