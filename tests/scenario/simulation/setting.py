"""The options of an upgrade, and how slow the harness is; with the seed it names one run exactly."""

import msgspec

from common.api.opaque import Json
from support.builders.ray_service import a_strategy


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One upgrade, as a user asks for it, and how slow the harness is."""

    surge: int = 50
    step: int = 25
    interval: int = 1
    kind: str = "NewClusterWithIncrementalUpgrade"
    seed: int = 0
    slow: float = 0.0
    """Maximum seconds that others take; with 0 all act at once, in a fixed order."""
    annotations: dict[str, str] = {}

    @property
    def strategy(self) -> Json:
        """Return `spec.upgradeStrategy`."""
        if self.kind != "NewClusterWithIncrementalUpgrade":
            return {"type": self.kind}
        return a_strategy(surge=self.surge, step=self.step, interval=self.interval)

    @property
    def lasts(self) -> float:
        """Return the seconds within which an upgrade ends, whatever happens to it."""
        if self.kind != "NewClusterWithIncrementalUpgrade" or not (self.surge and self.step):
            return 150.0
        return 100.0 + (100 / self.step + 200 / self.surge) * (self.interval + 1 + 3 * self.slow)

    def __str__(self) -> str:
        steps = (
            f"{self.surge}/{self.step}/{self.interval}"
            if self.strategy.get("clusterUpgradeOptions")
            else self.kind
        )
        return f"{steps} slow {self.slow:g} seed {self.seed}"
