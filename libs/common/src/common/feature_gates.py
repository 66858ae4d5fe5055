"""The feature gates that KubeRay knows, their stages, and what `A=true,B=false` makes of them (spec raycluster §3).

Gates are fixed for the life of a process. One that no service heeds yet is still known, so that flags written for KubeRay
are accepted.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from common import errors


class Stage(StrEnum):
    """How mature a feature is: beta is on by default, alpha is off."""

    ALPHA = "alpha"
    BETA = "beta"


STAGES: Final[Mapping[str, Stage]] = {
    "RayClusterStatusConditions": Stage.BETA,
    "RayJobDeletionPolicy": Stage.BETA,
    "RayMultiHostIndexing": Stage.BETA,
    "RayServiceIncrementalUpgrade": Stage.BETA,
    "RayCronJob": Stage.ALPHA,
    "SidecarSubmitterRestart": Stage.ALPHA,
    "RayClusterNetworkPolicy": Stage.ALPHA,
    "GCSFaultToleranceEmbeddedStorage": Stage.ALPHA,
    "RayClusterMTLS": Stage.ALPHA,
    "RayClusterHistoryServer": Stage.ALPHA,
    "KubernetesWAS": Stage.ALPHA,
}
GROUPS: Final = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
"""Each stands for the gates of its stage that are not named themselves."""


def parse(text: str) -> dict[str, bool]:
    """Read `A=true,B=false` as it stands; raise `InvalidSpec` for what is no gate."""
    named: dict[str, bool] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or value.lower() not in {"true", "false"}:
            raise errors.InvalidSpec(f"feature gate {pair!r}: expected Name=true or Name=false")
        if name not in STAGES and name not in GROUPS:
            known = ", ".join([*GROUPS, *sorted(STAGES)])
            raise errors.InvalidSpec(
                f"Unable to set flag gates for known features: unrecognized feature gate {name!r}; known: {known}"
            )
        named[name] = value.lower() == "true"
    return named


def resolve(named: Mapping[str, bool]) -> dict[str, bool]:
    """Return every gate as it is: named itself, else as its stage's group says, else by default."""
    groups = {stage: named.get(group, stage is Stage.BETA) for group, stage in GROUPS.items()}
    return {gate: named.get(gate, groups[stage]) for gate, stage in STAGES.items()}


def spell(named: Mapping[str, bool]) -> str:
    """Write gates as `parse` reads them."""
    return ",".join(f"{name}={str(is_on).lower()}" for name, is_on in named.items())
