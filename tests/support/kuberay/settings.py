"""Configuration of the operator for a folder of `tests/golden/kuberay`: as KubeRay's flags and as
our configuration.
"""

from pathlib import Path
from typing import Final

import msgspec

from cluster_reconciler import settings as own_settings
from cluster_reconciler.config import Config
from common import feature_gates
from common.ray import operator_file
from common.settings import OPERATOR_FILE as VARIABLE
from common.settings import Settings

FOLDER: Final = Path(__file__).parents[2] / "golden" / "kuberay"
OPERATOR_FILE: Final = "operator.yaml"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of the operator; the folder of that name contains the manifests and the
    objects made of them.
    """

    name: str
    gates: str = ""
    batch_scheduler: str = ""
    environment: dict[str, str] = {}
    """KubeRay's environment variables, which have the same meaning in raybus."""

    @property
    def folder(self) -> Path:
        """Return the folder with the manifests and the objects."""
        return FOLDER / self.name

    @property
    def operator_file(self) -> Path | None:
        """Return the path of the operator's configuration file; None if the setting has none."""
        path = self.folder / OPERATOR_FILE
        return path if path.exists() else None

    def config(self) -> Config:
        """Return our configuration."""
        gates = feature_gates.resolve(feature_gates.parse(self.gates))
        environment = {**self.environment, operator_file.BATCH_SCHEDULER: self.batch_scheduler}
        if self.operator_file is not None:
            environment[VARIABLE] = str(self.operator_file)
        return own_settings.configure(
            Settings(service="cluster-reconciler", feature_gates=gates), environment
        )


SETTINGS: Final = (
    Setting(name="plain"),
    Setting(name="gated", gates="GCSFaultToleranceEmbeddedStorage=true"),
    Setting(name="history", gates="RayClusterHistoryServer=true"),
    Setting(name="mtls", gates="RayClusterHistoryServer=true,RayClusterMTLS=true"),
    Setting(
        name="switched",
        environment={
            "ENABLE_LOGIN_SHELL": "true",
            "ENABLE_PROBES_INJECTION": "false",
            "ENABLE_INIT_CONTAINER_INJECTION": "false",
            "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": "true",
            "ENABLE_DETERMINISTIC_HEAD_POD_NAME": "true",
            "CLUSTER_DOMAIN": "example.org",
        },
    ),
    Setting(name="volcano", batch_scheduler="volcano"),
    Setting(name="yunikorn", batch_scheduler="yunikorn"),
    Setting(name="scheduler-plugins", batch_scheduler="scheduler-plugins"),
    Setting(name="kai-scheduler", batch_scheduler="kai-scheduler"),
)


def of_name(name: str) -> Setting:
    """Return the setting of a name."""
    return next(each for each in SETTINGS if each.name == name)
