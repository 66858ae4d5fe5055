"""`raybus images`: build images as archives, create a release, list images."""

import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from localcluster.errors import ClusterError, MisuseError
from localcluster.images import builder, release, sbom
from localcluster.images.builder import ImageArchive
from localcluster.progress import Progress
from localcluster.settings import LocalSettings

HELP: Final = """Build the container images, with or without Docker.

Examples:
$ raybus images build
$ raybus images release --registry registry.example.com/raybus
"""
app = typer.Typer(help=HELP, no_args_is_help=True)


class ImageOutput(StrEnum):
    """The formats of `--output`."""

    text = "text"
    json = "json"


_AsJson = Annotated[ImageOutput, typer.Option("--output", "-o", help="text or json.")]


@app.command()
def build(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Images to build; default: all.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", help="NAME=PATH of a binary that goes into an image."),
    ] = None,
    output: _AsJson = ImageOutput.text,
) -> None:
    """Build missing images and print the path of each image's archive.

    Beside each archive are its SBOM (sbom.cdx.json) and its provenance
    (provenance.intoto.json).
    """
    checkout = LocalSettings.from_environment().checkout
    with _report_errors("build"):
        files = _parse_files(file or [])
        images = builder.ensure(
            targets or (), progress=Progress.to_stderr(), files=files, checkout=checkout
        )
        _describe(images.values(), checkout, files)
    if output is ImageOutput.json:
        print(msgspec.json.encode(list(images.values()), enc_hook=str).decode())
        return
    for image in images.values():
        state = "built" if image.built else "cached"
        print(
            f"{image.target:20} {state:6} {image.path.stat().st_size / 1e6:7.1f} MB  {image.ref}  "
            f"{image.path}"
        )


@app.command(name="release")
def make_release(
    registry: Annotated[str, typer.Option(help="Registry of the images: HOST[:PORT]/PATH.")],
    folder: Annotated[Path, typer.Option("--to", help="Output folder.")] = Path("build/release"),
) -> None:
    """Build the images of an installation reproducibly.

    The output folder also gets manifests that pin each image to its digest.
    """
    checkout = LocalSettings.from_environment().checkout
    with _report_errors("release"):
        pinned = release.make(registry, folder, progress=Progress.to_stderr(), checkout=checkout)
    for image in pinned:
        print(f"{image.ref}  {image.archive}")


@app.command(name="list")
def list_images(output: _AsJson = ImageOutput.text) -> None:
    """List the images that can be built."""
    with _report_errors("list"):
        known = builder.list_images()
    if output is ImageOutput.json:
        print(msgspec.json.encode(known).decode())
        return
    for target, image in known.items():
        print(f"{target:20} {image}")


@contextmanager
def _report_errors(command: str) -> Generator[None]:
    """Print an error of the `with` block as one line, and exit with its code."""
    try:
        yield
    except ClusterError as error:
        sys.stderr.write(f"raybus images {command}: {error}\n")
        raise typer.Exit(2 if isinstance(error, MisuseError) else 1) from None


def _describe(images: Iterable[ImageArchive], checkout: Path, files: Mapping[str, Path]) -> None:
    """Write the SBOM and the provenance of each image beside its archive."""
    source = release.read_source(checkout)
    if source is None:
        sys.stderr.write("no provenance is written: the checkout differs from its commit\n")
    for image in images:
        sbom.write_sbom(image.path)
        if source is None:
            image.path.with_name(release.FILE).unlink(missing_ok=True)
        else:
            release.write_provenance(image, source, checkout, files)


def _parse_files(pairs: list[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise MisuseError(
                f"--file {pair}: write NAME=PATH, for example envoy-gateway=/path/to/envoy-gateway"
            )
        files[name] = Path(path)
    return files
