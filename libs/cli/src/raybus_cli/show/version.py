"""`raybus version`: the version of raybus, Python and the platform."""

import platform
import sys
from typing import Annotated

import msgspec
import typer

from common.version import VERSION
from raybus_cli import printing
from raybus_cli.printing import Output, VersionOption


class VersionInfo(msgspec.Struct, frozen=True):
    """The versions of raybus and Python, and the platform."""

    version: str
    python: str
    platform: str


def version(
    short: Annotated[bool, typer.Option("--short", help="Print the number only.")] = False,
    output: VersionOption = Output.TEXT,
) -> None:
    """Print the version of raybus.

    Examples:
    $ raybus version --short
    $ raybus version -o json
    """
    info = VersionInfo(VERSION, platform.python_version(), sys.platform)
    if output is not Output.TEXT:
        printing.print_data(info, output)
    else:
        printing.print_message(
            info.version if short else f"raybus {VERSION} (Python {info.python}, {info.platform})"
        )
