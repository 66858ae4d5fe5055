"""Checks the manifest of an UpgradePolicy by the rules of its reader, with the lines of the fields at fault. Pure."""

import re
from typing import Final, cast

from common.api.kubernetes_syntax import dns_1123_subdomain_problems
from common.api.opaque import Json
from common.kube.resources import UPGRADE_POLICY
from common.upgrade import policy as upgrade_policy
from common.upgrade.policy import PolicyError, UpgradePolicy
from raybus_cli.linting.finding import Finding, Level
from raybus_cli.manifests.reading import Document, Place

_PART: Final = re.compile(r"[A-Za-z]+|\d+")


def findings(document: Document) -> list[Finding]:
    """Return what the API server would refuse."""
    found: list[tuple[str, str]] = []
    version = document.body.get("apiVersion")
    if version != UPGRADE_POLICY.api_version:
        found.append(("apiVersion", f"{version!s:.60} is not {UPGRADE_POLICY.api_version}"))
    found += [("metadata.name", each) for each in dns_1123_subdomain_problems(document.name)[:1]]
    try:
        policy(document)
    except PolicyError as problem:
        for each in problem.problems:
            field, _, text = each.partition(": ")
            found.append((field, text))
    return [
        Finding(file=document.file, line=document.line(_place(field)), level=Level.ERROR, field=field, text=text)
        for field, text in found
    ]


def policy(document: Document) -> UpgradePolicy:
    """Return the policy of a manifest; `PolicyError` for one that cannot be meant."""
    return upgrade_policy.read(document.name, cast("Json", document.body.get("spec")))


def _place(field: str) -> Place:
    return tuple(int(part) if part.isdigit() else part for part in _PART.findall(field))
