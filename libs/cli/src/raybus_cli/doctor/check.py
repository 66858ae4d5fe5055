"""One check of `raybus doctor`: its category, its result, and the page that describes the remedy."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import replace


class Category(StrEnum):
    """The groups of checks, in the order of the report."""

    KUBERNETES = "Kubernetes"
    DEFINITIONS = "Definitions"
    SERVICES = "Services"
    NATS = "NATS"
    GATEWAY_API = "Gateway API"
    OPERATORS = "Other operators"
    RIGHTS = "Rights"
    RAY_SERVICES = "RayServices"


class Hint(StrEnum):
    """The pages about failures and warnings."""

    INSTALL = "docs/installation.md#apply-the-manifests"
    UPGRADE = "docs/installation.md#upgrade"
    SERVICES = "docs/troubleshooting.md#no-reaction-at-all"
    REPLICAS = "docs/how-to/sharding.md#scale-raybus-out"
    NATS = "docs/nats.md#topology"
    CERTIFICATES = "docs/nats.md#keys-and-certificates"
    FEATURE_GATES = "docs/reference/configuration.md#feature-gates"
    GATEWAY_API = "docs/how-to/gateway.md#use-the-gateway-that-raybus-creates"
    TWO_OPERATORS = "docs/migration.md#two-operators-by-mistake"
    MIGRATION = "docs/migration.md#1-check"
    RIGHTS = "docs/how-to/security.md#check-the-rights-in-kubernetes"
    RAY_SERVICES = "docs/troubleshooting.md#a-service-is-not-ready"


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The caller may not read it."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check."""

    name: str
    state: CheckState
    text: str
    remedy: str = ""
    category: Category | None = None
    hint: Hint | None = None
    """Where the documentation describes a failure or a warning."""


def of(category: Category, hint: Hint, *found: Check) -> Iterator[Check]:
    """Yield checks with their category, and those that did not pass with their hint."""
    for each in found:
        is_wrong = each.state in {CheckState.WARNING, CheckState.FAILED}
        yield replace(each, category=category, hint=hint if is_wrong else None)
