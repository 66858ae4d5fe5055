"""This service's own configuration, read beside the settings that all services share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from cluster_reconciler import operator_file
from cluster_reconciler.config import BatchSchedulerName, Config
from common.errors import InvalidSpec
from common.settings import OPERATOR_FILE, Settings

log = structlog.get_logger()

BATCH_SCHEDULER: Final = "RAYBUS_BATCH_SCHEDULER"
"""Names a batch scheduler as KubeRay's `--batch-scheduler` does, where the configuration file names none."""


def configure(settings: Settings, environ: Mapping[str, str]) -> Config:
    """Return the operator's configuration: KubeRay's own switches, its file, and the gates and domain of our settings."""
    config = Config.from_environment(environ, settings.feature_gates)
    if "RAYBUS_CLUSTER_DOMAIN" in environ:
        config = msgspec.structs.replace(config, cluster_domain=settings.cluster_domain)
    if path := environ.get(OPERATOR_FILE, "").strip():
        config = _with_file(config, Path(path))
    if config.batch_scheduler is not BatchSchedulerName.NONE:
        return config
    name = operator_file.scheduler_name(environ.get(BATCH_SCHEDULER, "").strip(), gates=config.gates)
    return msgspec.structs.replace(config, batch_scheduler=name)


def _with_file(config: Config, path: Path) -> Config:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidSpec(f"{OPERATOR_FILE}={str(path)!r}: {problem}; name a readable file or unset it") from problem
    file = operator_file.parse(text, path=str(path))
    if ignored := operator_file.without_effect(file):
        log.warning("fields of the configuration file have no effect here", fields=ignored)
    return operator_file.apply(config, file)
