"""The feature gates that KubeRay knows, their stages, and what `A=true,B=false` makes of them (spec raycluster §3).

Gates are fixed for the life of a process. One that no service heeds yet is still known, so that flags written for KubeRay
are accepted.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from common import errors


class Gate(StrEnum):
    """A feature that can be switched on or off for the whole process."""

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


Gates: TypeAlias = frozenset[Gate]
"""The gates that are on; all others are off."""

BETA: Final[Gates] = frozenset(
    {
        Gate.STATUS_CONDITIONS,
        Gate.DELETION_POLICY,
        Gate.MULTI_HOST_INDEXING,
        Gate.INCREMENTAL_UPGRADE,
    }
)
"""The gates that are on by default; all others are alpha and off."""
ALL_ALPHA: Final = "AllAlpha"
ALL_BETA: Final = "AllBeta"
"""Each stands for the gates of its stage that are not named themselves."""
FORGOTTEN: Final = "AsyncJobInfoQuery"
"""A gate of older operators; naming it changes nothing."""
MIN_KUBERNETES: Final[Mapping[Gate, tuple[int, int]]] = {Gate.SIDECAR_SUBMITTER_RESTART: (1, 35)}
"""The oldest minor version of Kubernetes with which KubeRay starts while the gate is on."""
_ON: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_OFF: Final = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""How Go's `strconv.ParseBool`, which reads KubeRay's flag, spells the two."""


def parse(text: str) -> dict[str, bool]:
    """Read `A=true,B=false` as it stands; raise `InvalidSpec` for what is no gate."""
    named: dict[str, bool] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or value not in _ON | _OFF:
            raise errors.InvalidSpec(f"feature gate {pair!r}: expected Name=true or Name=false")
        if name not in {ALL_ALPHA, ALL_BETA, FORGOTTEN, *Gate}:
            known = ", ".join([ALL_ALPHA, ALL_BETA, *sorted(Gate)])
            raise errors.InvalidSpec(
                f"Unable to set flag gates for known features: unrecognized feature gate {name!r}; known: {known}"
            )
        named[name] = value in _ON
    return named


def resolve(named: Mapping[str, bool]) -> Gates:
    """Return the gates that are on: by their own name, else by their stage's group, else by default."""
    alpha, beta = named.get(ALL_ALPHA, False), named.get(ALL_BETA, True)
    return frozenset(gate for gate in Gate if named.get(gate, beta if gate in BETA else alpha))


def check_kubernetes(gates: Gates, version: str) -> None:
    """Raise `InvalidSpec` for a gate that needs a newer API server; `version` is its `gitVersion`.

    A pre-release counts as its release, as in KubeRay.
    """
    numbers = version.removeprefix("v").split(".")[:2]
    known = tuple(map(int, numbers)) if all(each.isdecimal() for each in numbers) else ()
    for gate in sorted(gates & MIN_KUBERNETES.keys()):
        if known < MIN_KUBERNETES[gate]:
            wanted = ".".join(map(str, MIN_KUBERNETES[gate]))
            raise errors.InvalidSpec(
                f"feature gate {gate} requires Kubernetes {wanted}, and the API server is "
                f"{version or 'of unknown version'}: set {gate}=false"
            )


def is_on(values: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return whether a switch that is no gate is on: an environment variable, or an annotation or label; other texts leave the default."""
    return {"true": True, "false": False}.get(values.get(name, "").lower(), default)


def spell(named: Mapping[str, bool]) -> str:
    """Write gates as `parse` reads them."""
    return ",".join(f"{name}={str(is_on).lower()}" for name, is_on in named.items())
