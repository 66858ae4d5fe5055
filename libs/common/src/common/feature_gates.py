"""KubeRay's feature gates, their stages, and the parser of `A=true,B=false` (spec raycluster §3).

Gates do not change during the life of a process. Gates that no service uses yet are included, so
that flags written for KubeRay are accepted.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from common import errors


class FeatureGate(StrEnum):
    """A feature that is on or off for the whole process."""

    STATUS_CONDITIONS = "RayClusterStatusConditions"
    DELETION_POLICY = "RayJobDeletionPolicy"
    MULTI_HOST_INDEXING = "RayMultiHostIndexing"
    INCREMENTAL_UPGRADE = "RayServiceIncrementalUpgrade"
    CRON_JOB = "RayCronJob"
    SIDECAR_SUBMITTER_RESTART = "SidecarSubmitterRestart"
    NETWORK_POLICY = "RayClusterNetworkPolicy"
    EMBEDDED_STORAGE = "GCSFaultToleranceEmbeddedStorage"
    MTLS = "RayClusterMTLS"
    HISTORY_SERVER = "RayClusterHistoryServer"
    KUBERNETES_WAS = "KubernetesWAS"


Gates: TypeAlias = frozenset[FeatureGate]
"""The gates that are on; all others are off."""

BETA: Final[Gates] = frozenset(
    {
        FeatureGate.STATUS_CONDITIONS,
        FeatureGate.DELETION_POLICY,
        FeatureGate.MULTI_HOST_INDEXING,
        FeatureGate.INCREMENTAL_UPGRADE,
    }
)
"""The gates that are on by default; all others are alpha and off by default."""
ALL_ALPHA: Final = "AllAlpha"
ALL_BETA: Final = "AllBeta"
"""Name of the entry that sets all beta gates without an entry of their own.

`ALL_ALPHA` sets the alpha gates in the same way."""
FORGOTTEN: Final = "AsyncJobInfoQuery"
"""Name of a gate of older operators; it is accepted without effect."""
MIN_KUBERNETES: Final[Mapping[FeatureGate, tuple[int, int]]] = {
    FeatureGate.SIDECAR_SUBMITTER_RESTART: (1, 35)
}
"""For each gate, the oldest version of Kubernetes (major, minor) with which it may be on."""
_ON: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_OFF: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""The texts that mean false to Go's `strconv.ParseBool`, with which KubeRay parses the flag.

`_ON` has the texts that mean true."""


def parse(text: str) -> dict[str, bool]:
    """Parse `A=true,B=false`; raises `InvalidSpec` for an unknown gate or value."""
    named: dict[str, bool] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or value not in _ON | _OFF:
            raise errors.InvalidSpec(f"feature gate {pair!r}: expected Name=true or Name=false")
        if name not in {ALL_ALPHA, ALL_BETA, FORGOTTEN, *FeatureGate}:
            known = ", ".join([ALL_ALPHA, ALL_BETA, *sorted(FeatureGate)])
            raise errors.InvalidSpec(
                "Unable to set flag gates for known features: unrecognized feature gate "
                f"{name!r}; known: {known}"
            )
        named[name] = value in _ON
    return named


def resolve(named: Mapping[str, bool]) -> Gates:
    """Return the gates that are on.

    A gate has its own value in `named` (the result of `parse`), else that of `AllAlpha` or
    `AllBeta`, else its default.
    """
    alpha, beta = named.get(ALL_ALPHA, False), named.get(ALL_BETA, True)
    return frozenset(
        gate for gate in FeatureGate if named.get(gate, beta if gate in BETA else alpha)
    )


def check_kubernetes(gates: Gates, version: str) -> None:
    """Raise `InvalidSpec` if a gate that is on needs a newer API server.

    `version` is the API server's `gitVersion`. A pre-release counts as its release, as in KubeRay.
    """
    numbers = version.removeprefix("v").split(".")[:2]
    known = tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else ()
    for gate in sorted(gates & MIN_KUBERNETES.keys()):
        if known < MIN_KUBERNETES[gate]:
            wanted = ".".join(map(str, MIN_KUBERNETES[gate]))
            raise errors.InvalidSpec(
                f"feature gate {gate} requires Kubernetes {wanted}, and the API server is "
                f"{version or 'of unknown version'}: set {gate}=false"
            )


def is_on(values: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return whether a switch in an environment variable, annotation or label is on.

    It is on if the text is `true` and off if it is `false`, regardless of case. Any other text, or
    none, gives the default. Not for feature gates.
    """
    return {"true": True, "false": False}.get(values.get(name, "").lower(), default)


def spell(named: Mapping[str, bool]) -> str:
    """Format gates as text that `parse` accepts."""
    return ",".join(f"{name}={str(is_on).lower()}" for name, is_on in named.items())
