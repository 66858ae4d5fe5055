"""Checks the manifest of an UpgradePolicy by the rules of its reader, with the lines of the fields at fault. Pure."""

import re
from collections.abc import Iterable
from typing import Final, cast

from common import labels
from common.api.kubernetes_syntax import dns_1123_subdomain_problems
from common.api.opaque import Json
from common.kube.resources import UPGRADE_POLICY
from common.ray import serve_writer
from common.upgrade import policy as upgrade_policy
from common.upgrade.policy import PolicyError, UpgradePolicy
from raybus_cli.linting.finding import Finding, Level
from raybus_cli.manifests.reading import Document, Place
from raybus_cli.planning import policies

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


def advice(document: Document, services: Iterable[Document]) -> list[Finding]:
    """Return what of a valid policy does not apply to the RayServices of these that follow it: all their traffic moves at once."""
    followers = [each.name for each in services if _follows(each, document) and not _moves_in_steps(each)]
    if not followers:
        return []
    why = f"does not apply to RayService {', '.join(sorted(followers))}: all traffic moves at once"
    return [
        Finding(file=document.file, line=document.line(_place(field)), level=Level.ADVICE, field=field, text=why)
        for field in policies.unused(policy(document))
    ]


def _follows(service: Document, document: Document) -> bool:
    """Return whether a RayService follows a policy: it names it, or names none and the policy is the default."""
    name = _section(service, "metadata", "annotations").get(labels.UPGRADE_POLICY)
    is_default = _section(document, "metadata", "annotations").get(labels.DEFAULT_POLICY) == "true"
    places = (_section(each, "metadata").get("namespace") for each in (service, document))
    return len(set(places)) == 1 and (name == document.name if name else is_default)


def _moves_in_steps(service: Document) -> bool:
    return _section(service, "spec", "upgradeStrategy").get("type") == serve_writer.INCREMENTAL


def _section(document: Document, *path: str) -> Json:
    """Return a section of a manifest, empty where there is none."""
    held: Json = document.body
    for name in path:
        found = held.get(name)
        held = cast("Json", found) if isinstance(found, dict) else {}
    return held


def policy(document: Document) -> UpgradePolicy:
    """Return the policy of a manifest; `PolicyError` for one that cannot be meant."""
    return upgrade_policy.read(document.name, cast("Json", document.body.get("spec")))


def _place(field: str) -> Place:
    return tuple(int(part) if part.isdigit() else part for part in _PART.findall(field))
