"""The settings of the job-reconciler (spec rayjob §1)."""

from datetime import timedelta
from pathlib import Path

import pytest

from common.feature_gates import BETA
from common.settings import Settings
from job_reconciler.settings import read_config
from job_reconciler.wiring import configure

GRACE = "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS"
CHECKS = "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS"


@pytest.mark.parametrize(
    ("text", "grace", "checks"),
    [
        ("7", 7, 7),
        ("0", 0, 300),
        ("-5", -5, 300),
        ("invalid", 300, 300),
        ("", 300, 300),
        ("9" * 400, 300, 300),
    ],
)
def test_time_limits_are_read_as_kuberay_reads_them(text: str, grace: int, checks: int) -> None:
    limits = read_config(BETA, {GRACE: text, CHECKS: text}, cluster_domain="c.local").limits
    assert limits.grace_period == timedelta(seconds=grace)
    assert limits.status_check_timeout == timedelta(seconds=checks)


@pytest.mark.acceptance("rayjob", 108)
def test_switches_have_kuberays_names() -> None:
    environ = {
        "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES": "TRUE",
        "ENABLE_LOGIN_SHELL": "true",
        "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": "True",
    }
    config = read_config(BETA, environ, cluster_domain="c.local", batch_scheduler="volcano")
    assert config.deletes_job_itself
    assert config.uses_login_shell
    assert config.head_service_has_cluster_ip
    assert config.cluster_domain == "c.local"
    assert config.batch_scheduler == "volcano"
    assert not read_config(BETA, {}, cluster_domain="c.local").deletes_job_itself


@pytest.mark.acceptance("rayjob", 108)
@pytest.mark.parametrize(
    ("line", "deletes"),
    [
        ("deleteRayJobAfterJobFinishes: true", True),
        ("deleteRayJobAfterJobFinishes: false", False),
        ("deleteRayJobAfterJobFinishes:", False),
        ("", False),
    ],
)
def test_the_operators_file_may_order_the_deletion_of_jobs(
    line: str, deletes: bool, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n{line}\n")
    environ = {"RAYBUS_OPERATOR_CONFIG": str(path)}
    config = configure(Settings.from_environment("job-reconciler", environ), environ)
    assert config.deletes_job_itself == deletes
