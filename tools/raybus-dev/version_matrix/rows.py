"""The rows of the version matrix, and the outcome of a row. Does no I/O."""

from typing import Final

import msgspec

from localcluster import settings

PINNED_PYTHON: Final = "3.11"


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of one run. Fields that are left out have the version that other tests use."""

    name: str
    kubernetes: str = settings.KUBERNETES
    gateway_api: str = settings.GATEWAY_API
    nats: str = ""
    """Version of the NATS server to build from its module; empty for the version in uv.lock."""
    python: str = PINNED_PYTHON
    """Version of the Python that runs the services."""
    ray: str = ""
    """Version of the Ray heads; empty for simulated ones."""
    refusal: str = ""
    """Part of the sentence with which raybus refuses this version; empty if the version works."""

    @property
    def difference(self) -> str:
        """The programs and versions in which the row differs from other tests, as text."""
        named = {
            "Kubernetes": self.kubernetes if self.kubernetes != settings.KUBERNETES else "",
            "Gateway API": self.gateway_api if self.gateway_api != settings.GATEWAY_API else "",
            "NATS": self.nats,
            "Python": self.python if self.python != PINNED_PYTHON else "",
            "Ray": self.ray,
        }
        return ", ".join(f"{name} {version}" for name, version in named.items() if version)


ROWS: Final = (
    VersionRow(name="pinned"),
    *(
        VersionRow(name=f"kubernetes-{version.rpartition('.')[0]}", kubernetes=version)
        for version in settings.TESTED_KUBERNETES
    ),
    VersionRow(
        name="gateway-api-0.6",
        gateway_api=settings.TESTED_GATEWAY_API[0],
        refusal="(gateway.networking.k8s.io/v1) is not installed",
    ),
    *(
        VersionRow(name=f"gateway-api-{version.rpartition('.')[0]}", gateway_api=version)
        for version in settings.TESTED_GATEWAY_API[1:]
    ),
    VersionRow(name="nats-2.10", nats=settings.TESTED_NATS[0], refusal="is older than 2.11"),
    *(
        VersionRow(name=f"nats-{version.rpartition('.')[0]}", nats=version)
        for version in settings.TESTED_NATS[1:]
    ),
    VersionRow(name="python-3.13", python="3.13"),
    *(
        VersionRow(name=f"ray-{version.rpartition('.')[0]}", ray=version)
        for version in settings.TESTED_RAY
    ),
)
STEPS: Final = ("RayCluster", "RayJob", "RayService", "upgrade")
"""The steps of a run, in their order."""


class RowOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one row."""

    row: str
    seconds: dict[str, float] = {}
    """Seconds that each step took."""
    weights: list[int] = []
    """Percent of the traffic that the new cluster had during the upgrade, in order."""
    refusal: str = ""
    """The sentence with which raybus refused the version."""


def find(names: list[str]) -> list[VersionRow]:
    """Return the rows of `names` (all if empty). Raises `KeyError` for an unknown name."""
    by_name = {row.name: row for row in ROWS}
    return [by_name[name] for name in names] if names else list(ROWS)
