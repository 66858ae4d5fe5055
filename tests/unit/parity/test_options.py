"""Every option of KubeRay's operator is translated, refused, or known to have no effect."""

from pathlib import Path

import pytest

from cluster_reconciler import settings as cluster_settings
from cluster_reconciler.config import PodAdditions
from parity import options, recorded
from parity.options import Options
from raybus_cli.migrating import switches

MAIN = """
func main() {
	flag.StringVar(&metricsAddr, "metrics-addr", configapi.DefaultMetricsAddr, "…")
	flag.StringVar(
		&watchNamespace,
		"new-flag",
	)
	if os.Getenv("ENABLE_WEBHOOKS") == "true" {
	}
}
"""
CONTROLLER = """
const (
	newEnv = "NEW_VARIABLE"
)
var found = strings.ToLower(os.Getenv(utils.newEnv))
"""
TYPES = """
	QPS *float64 `json:"qps,omitempty"`
	New string `json:"newField,omitempty"`
"""


def a_checkout(folder: Path, controller: str = CONTROLLER) -> Path:
    config = folder / "apis" / "config" / "v1alpha1"
    config.mkdir(parents=True)
    (config / "configuration_types.go").write_text(TYPES)
    (folder / "controllers").mkdir()
    (folder / "controllers" / "raycluster_controller.go").write_text(controller)
    (folder / "controllers" / "raycluster_controller_test.go").write_text(
        'x := os.Getenv("OF_A_TEST")'
    )
    (folder / "main.go").write_text(MAIN)
    return folder


def test_the_options_of_kuberay_are_known() -> None:
    found = recorded.read_options()
    assert "CLUSTER_DOMAIN" in found.variables
    assert "feature-gates" in found.flags
    assert "qps" in found.fields
    assert options.missing(found) == []


def test_the_table_has_nothing_that_kuberay_lacks() -> None:
    found = recorded.read_options()
    of_libraries = {"kubeconfig", *(name for name in switches.FLAGS if name.startswith("zap-"))}
    assert switches.VARIABLES.keys() == set(found.variables)
    assert switches.FLAGS.keys() - of_libraries == set(found.flags)


def test_an_option_of_a_newer_kuberay_is_missing(tmp_path: Path) -> None:
    found = options.read(a_checkout(tmp_path))
    assert found == Options(
        variables=["ENABLE_WEBHOOKS", "NEW_VARIABLE"],
        flags=["metrics-addr", "new-flag"],
        fields=["newField", "qps"],
    )
    assert options.missing(found) == ["variable NEW_VARIABLE", "flag --new-flag", "field newField"]


def test_a_variable_without_a_constant_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        options.read(a_checkout(tmp_path, "x := os.Getenv(name(i))"))


def test_every_field_of_the_file_is_applied_or_reported() -> None:
    text = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n"
    values = {"qps": "1.5", "burst": "3", "reconcileConcurrency": "2"}
    applied = {*PodAdditions.__struct_encode_fields__}
    applied |= {"batchScheduler", "enableBatchScheduler", "deleteRayJobAfterJobFinishes"}
    for field in recorded.read_options().fields:
        if field not in applied:
            is_switch = field.startswith(("enable", "use"))
            value = values.get(field, "true" if is_switch else "x")
            file = cluster_settings.parse(f"{text}{field}: {value}\n", path="f")
            (reported,) = cluster_settings.find_ineffective_fields(file)
            assert reported.partition(" ")[0] == field
