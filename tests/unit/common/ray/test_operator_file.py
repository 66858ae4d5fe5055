"""The batch scheduler that a service gets from the operator's file, or from its environment."""

from pathlib import Path

import pytest

from common.errors import InvalidSpec
from common.feature_gates import BETA, FeatureGate
from common.ray import operator_file

HEAD = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n"


@pytest.mark.parametrize(
    ("text", "variable", "expected"),
    [
        pytest.param(None, "", "", id="none"),
        pytest.param(None, " yunikorn ", "yunikorn", id="by the environment"),
        pytest.param("", "yunikorn", "yunikorn", id="a file that names none"),
        pytest.param("batchScheduler: volcano\n", "yunikorn", "volcano", id="by the file"),
        pytest.param("enableBatchScheduler: true\n", "", "volcano", id="by KubeRay's old switch"),
        pytest.param("headSidecarContainers: 7\n", "", "", id="fields of another service"),
    ],
)
def test_the_file_counts_before_the_environment(
    text: str | None, variable: str, expected: str, tmp_path: Path
) -> None:
    environ = {"RAYBUS_BATCH_SCHEDULER": variable}
    if text is not None:
        (tmp_path / "config.yaml").write_text(HEAD + text)
        environ["RAYBUS_OPERATOR_CONFIG"] = str(tmp_path / "config.yaml")
    assert operator_file.read_batch_scheduler(environ, BETA) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batchScheduler: mine\n", "scheduler is not supported, name=mine; known: volcano,"),
        ("batchScheduler: [volcano]\n", "failed to decode config file"),
        ("batchScheduler: volcano\nenableBatchScheduler: true\n", "use batch-scheduler only"),
    ],
)
def test_a_wrong_choice_names_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(InvalidSpec, match=message):
        operator_file.read_batch_scheduler({"RAYBUS_OPERATOR_CONFIG": str(path)}, BETA)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidSpec, match="RAYBUS_OPERATOR_CONFIG='/not/there'"):
        operator_file.read_batch_scheduler({"RAYBUS_OPERATOR_CONFIG": "/not/there"}, BETA)


def test_no_scheduler_goes_with_the_one_of_kubernetes() -> None:
    gates = BETA | {FeatureGate.KUBERNETES_WAS}
    assert operator_file.read_batch_scheduler({}, gates) == ""
    with pytest.raises(InvalidSpec, match="cannot be combined"):
        operator_file.read_batch_scheduler({"RAYBUS_BATCH_SCHEDULER": "volcano"}, gates)
