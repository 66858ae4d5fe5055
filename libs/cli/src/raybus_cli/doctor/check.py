"""The result of one check of `raybus doctor`."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import replace


class Category(StrEnum):
    """The categories of checks, in the order of the report."""

    KUBERNETES = "Kubernetes"
    DEFINITIONS = "Definitions"
    SERVICES = "Services"
    NATS = "NATS"
    GATEWAY_API = "Gateway API"
    OPERATORS = "Other operators"
    RIGHTS = "Rights"
    RAY_SERVICES = "RayServices"


class Hint(StrEnum):
    """Documentation pages about checks that fail or warn."""

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
    """The state of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The caller may not read the facts that the check needs."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check of `raybus doctor`, with its result."""

    name: str
    state: CheckState
    text: str
    remedy: str = ""
    category: Category | None = None
    hint: Hint | None = None
    """Documentation page about this failure or warning."""


def categorize(category: Category, hint: Hint, *checks: Check) -> Iterator[Check]:
    """Yield `checks` with their category; failed checks and warnings get the hint too."""
    for check in checks:
        is_wrong = check.state in {CheckState.WARNING, CheckState.FAILED}
        yield replace(check, category=category, hint=hint if is_wrong else None)
