"""The text picture of packages in docs/architecture.md, drawn from the imports of all modules."""

import configparser
import textwrap
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

import grimp

from support.manifests import ROOT

BEGIN: Final = "<!-- drawn from the imports: begin -->"
END: Final = "<!-- drawn from the imports: end -->"
_WIDTH: Final = 98
_RULE: Final = "  " + "─" * (_WIDTH - 2)


def picture() -> str:
    """Draw all packages of the repository in rows.

    A package imports only from rows below its own.
    """
    return draw(_imports(), {name: _folder(name) for name in _packages()})


def draw(imports: Mapping[str, set[str]], folders: Mapping[str, str]) -> str:
    """Draw packages in rows, each with its direct imports.

    `folders` has the folder of each package. An import is left out if another import of the same
    package implies it. A package that imports nothing and is imported by none is in the first row.
    """
    closures = {name: _reachable(name, imports) for name in imports}
    heights = {name: _height(name, closures) for name in imports}
    imported = set[str]().union(*imports.values())
    heights |= {
        name: max(heights.values())
        for name, targets in imports.items()
        if not targets and name not in imported
    }
    width = max(map(len, imports))
    rows: list[str] = []
    order = sorted(imports, key=lambda name: (-heights[name], folders[name], name))
    for _, names in groupby(order, key=heights.__getitem__):
        lines: list[str] = []
        for name in names:
            targets = ", ".join(sorted(_reduce(name, imports[name], closures)))
            head = f"  {folders[name]:<8}  {name:<{width}}"
            lines += textwrap.wrap(
                f"{head}  → {targets}" if targets else head,
                width=_WIDTH,
                subsequent_indent=" " * (len(head) + 4),
            )
        rows.append("\n".join(line.rstrip() for line in lines))
    return "\n".join([BEGIN, "", "```text", f"\n{_RULE}\n".join(rows), "```", "", END])


def _packages() -> list[str]:
    configuration = configparser.ConfigParser()
    configuration.read(ROOT / ".importlinter")
    return configuration["importlinter"]["root_packages"].split()


def _imports() -> dict[str, set[str]]:
    """Return, for each package of the repository, the other packages that it imports."""
    packages = _packages()
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    return {
        importer: {
            imported
            for imported in packages
            if imported != importer
            and graph.direct_import_exists(importer=importer, imported=imported, as_packages=True)
        }
        for importer in packages
    }


def _folder(package: str) -> str:
    """Return the top-level folder of a package: `libs`, `services` or `tools`."""
    return next(
        path.relative_to(ROOT).parts[0]
        for top in ("libs", "services", "tools")
        for pattern in (f"{top}/*/src/{package}", f"{top}/*/{package}")
        for path in Path(ROOT).glob(f"{pattern}/__init__.py")
    )


def _reachable(name: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached, pending = set[str](), [name]
    while pending:
        new = imports[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def _height(name: str, closures: Mapping[str, set[str]]) -> int:
    """Return the length of the longest chain of imports that begins at a package.

    `closures` has, for each package, all packages that it imports directly or indirectly.
    """
    below = (target for target in closures[name] if name not in closures[target])
    return max((1 + _height(target, closures) for target in below), default=0)


def _reduce(name: str, targets: set[str], closures: Mapping[str, set[str]]) -> set[str]:
    """Return the imports of a package (`targets`) that no other import of the package implies."""
    others = {target for target in targets if name not in closures[target]}
    return {
        target
        for target in targets
        if not any(target in closures[other] for other in others - {target})
    }
