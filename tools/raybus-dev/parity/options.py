"""Reads the environment variables, flags and file fields of KubeRay's operator from its source.

`make parity` fails for an option that raybus neither translates nor declares as having no effect.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from cluster_reconciler.settings import OperatorFile
from raybus_cli.migrating import switches

_READ: Final = re.compile(r"\bos\.(?:Getenv|LookupEnv)\((?:(?:\w+\.)?(\w+)|\"(\w+)\"|(.*))\)")
_CONSTANT: Final = re.compile(r"^\s*(?:const\s+)?(\w+)\s*=\s*\"(\w+)\"", re.MULTILINE)
_FLAG: Final = re.compile(r"\bflag\.\w+Var\(\s*&\w+,\s*\"([\w-]+)\"")
_FIELD: Final = re.compile(r"json:\"(\w+),omitempty\"")
_FOLDERS: Final = ("apis", "controllers", "internal", "pkg")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Sorted names of the options of KubeRay's operator."""

    variables: list[str]
    flags: list[str]
    fields: list[str]


def read(operator: Path) -> Options:
    """Read the options from the source in KubeRay's folder `ray-operator`.

    Raises `LookupError` for a variable whose name is neither a literal nor a constant.
    """
    files = [operator / "main.go"]
    for folder in _FOLDERS:
        files += (
            file for file in (operator / folder).rglob("*.go") if not file.stem.endswith("_test")
        )
    texts = [file.read_text() for file in files]
    constants = {name: value for text in texts for name, value in _CONSTANT.findall(text)}
    variables = {
        literal or constants[name or expression]
        for text in texts
        for name, literal, expression in _READ.findall(text)
    }
    configuration = operator / "apis" / "config" / "v1alpha1" / "configuration_types.go"
    return Options(
        variables=sorted(variables),
        flags=sorted(set(_FLAG.findall(texts[0]))),
        fields=sorted(set(_FIELD.findall(configuration.read_text()))),
    )


def missing(options: Options) -> list[str]:
    """Return the options that raybus neither translates nor declares as having no effect."""
    fields = {field.encode_name for field in msgspec.structs.fields(OperatorFile)}
    return [
        *(f"variable {name}" for name in options.variables if name not in switches.VARIABLES),
        *(f"flag --{name}" for name in options.flags if name not in switches.FLAGS),
        *(f"field {name}" for name in options.fields if name not in fields),
    ]
