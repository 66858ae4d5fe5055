"""Settings that only job-reconciler reads from its environment (spec rayjob §1)."""

from collections.abc import Mapping
from datetime import UTC, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from common import feature_gates
from common.feature_gates import BETA, Gates
from job_reconciler import deadlines
from job_reconciler.outcome import DEFAULT_LIMITS, Limits


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of job-reconciler; the defaults are KubeRay's."""

    gates: Gates = BETA
    limits: Limits = DEFAULT_LIMITS
    deletes_job_itself: bool = False
    """Whether `shutdownAfterJobFinishes` deletes the RayJob and not only its cluster (§13.4)."""
    uses_login_shell: bool = False
    """Whether the submitter's shell is a login shell (`ENABLE_LOGIN_SHELL`)."""
    cluster_domain: str = "cluster.local"
    head_service_has_cluster_ip: bool = False
    local_zone: tzinfo = UTC
    """The time zone of RayCronJobs that do not name one: the zone of this process (`TZ`)."""
    batch_scheduler: str = ""
    """Name of the batch scheduler; empty for the default scheduler of Kubernetes."""


def read_config(
    gates: Gates, environ: Mapping[str, str], *, cluster_domain: str, batch_scheduler: str = ""
) -> Config:
    """Return the settings from environment variables, which have KubeRay's names."""
    return Config(
        gates=gates,
        limits=Limits(
            grace_period=_read_seconds(
                environ,
                "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS",
                deadlines.DEFAULT_GRACE_PERIOD,
            ),
            status_check_timeout=_read_seconds(
                environ,
                "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS",
                deadlines.DEFAULT_STATUS_CHECK_TIMEOUT,
                minimum=1,
            ),
        ),
        deletes_job_itself=feature_gates.is_on(environ, "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES"),
        uses_login_shell=feature_gates.is_on(environ, "ENABLE_LOGIN_SHELL"),
        cluster_domain=cluster_domain,
        head_service_has_cluster_ip=feature_gates.is_on(
            environ, "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"
        ),
        local_zone=_read_zone(environ.get("TZ", "")),
        batch_scheduler=batch_scheduler,
    )


def _read_zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _read_seconds(
    environ: Mapping[str, str], name: str, default: timedelta, *, minimum: int | None = None
) -> timedelta:
    """Return the seconds in an environment variable, or the default for an unusable value.

    KubeRay uses the default in these cases too.
    """
    try:
        seconds = int(environ.get(name, ""))
        if minimum is None or seconds >= minimum:
            return timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        pass
    return default
