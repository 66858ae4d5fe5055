"""The whole answer of `raybus migrate check`, and its verdict."""

from enum import StrEnum
from typing import Final

import msgspec

from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import Finding, Level, Subject
from raybus_cli.migrating.switches import Setting

READY_CODE: Final = 0
NOT_READY_CODE: Final = 1
UNREAD_CODE: Final = 2


class Verdict(StrEnum):
    """The verdict of the check."""

    READY = "ready"
    """Taking over would change nothing."""
    NOT_READY = "not ready"
    """Something would change, or is not supported."""
    UNREAD = "unread"
    """A necessary fact could not be read."""


class OperatorSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An operator that was found."""

    namespace: str
    name: str
    version: str
    replicas: int
    ready: int


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What taking a cluster over from KubeRay would change."""

    verdict: Verdict
    kuberay: list[OperatorSummary]
    raybus: list[OperatorSummary]
    settings: list[Setting]
    """The settings of KubeRay's operator, with their names here."""
    environment: dict[str, str]
    """The variables that give raybus the same configuration."""
    findings: list[Finding]
    """About the installation."""
    objects: list[Subject]


def verdict(found: list[Finding], objects: list[Subject]) -> Verdict:
    """Return the verdict of all findings."""
    match findings.worst([*found, *(each for held in objects for each in held.findings)]):
        case None | Level.NOTE:
            return Verdict.READY
        case Level.UNREAD:
            return Verdict.UNREAD
        case Level.CHANGE | Level.UNSUPPORTED:
            return Verdict.NOT_READY


CODES: Final = {Verdict.READY: READY_CODE, Verdict.NOT_READY: NOT_READY_CODE, Verdict.UNREAD: UNREAD_CODE}
