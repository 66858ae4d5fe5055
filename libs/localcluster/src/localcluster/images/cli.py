"""`raybus images`: build the images as archives, list them."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from localcluster.errors import ClusterError, MisuseError
from localcluster.images import builder, sbom
from localcluster.progress import Progress

app = typer.Typer(help="Build container images without (or with) Docker.", no_args_is_help=True)


class Output(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


_AsJson = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]


@app.command()
def build(
    targets: Annotated[list[str] | None, typer.Argument(help="Images to build; all of them if none is named.")] = None,
    file: Annotated[
        list[str] | None, typer.Option("--file", help="NAME=PATH of a binary that goes into an image.")
    ] = None,
    output: _AsJson = Output.text,
) -> None:
    """Build what is missing and print where each image's archive lies; what is in it is told by sbom.cdx.json beside it."""
    try:
        found = builder.ensure(targets or (), progress=Progress.to_stderr(), files=_files(file or []))
        for image in found.values():
            sbom.beside(image.path)
    except ClusterError as error:
        sys.stderr.write(f"raybus images build: {error}\n")
        raise typer.Exit(2 if isinstance(error, MisuseError) else 1) from None
    if output is Output.json:
        print(msgspec.json.encode(list(found.values()), enc_hook=str).decode())
        return
    for image in found.values():
        state = "built" if image.built else "there"
        print(f"{image.target:20} {state:6} {image.path.stat().st_size / 1e6:7.1f} MB  {image.ref}  {image.path}")


@app.command(name="list")
def list_images(output: _AsJson = Output.text) -> None:
    """List the images that can be built."""
    try:
        known = builder.images()
    except ClusterError as error:
        sys.stderr.write(f"raybus images list: {error}\n")
        raise typer.Exit(1) from None
    if output is Output.json:
        print(msgspec.json.encode(known).decode())
        return
    for target, image in known.items():
        print(f"{target:20} {image}")


def _files(pairs: list[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise MisuseError(f"--file {pair}: write NAME=PATH, for example envoy-gateway=/path/to/envoy-gateway")
        files[name] = Path(path)
    return files
