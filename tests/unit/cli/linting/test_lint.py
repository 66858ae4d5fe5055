"""The findings of lint in a manifest: file, line, field, and what is wrong or could be better."""

import copy
from collections.abc import Callable

import pytest
import yaml
from typer.testing import CliRunner

from common import labels
from common.api.opaque import Json
from common.feature_gates import BETA
from raybus_cli import main, manifests
from raybus_cli.linting import cli, lint
from raybus_cli.linting.serve_schema import LintFinding, LintLevel
from support.builders.ray_job import a_cluster_spec
from support.builders.ray_service import a_serve_config
from support.builders.snapshots import STEPS, a_config
from support.golden import Golden
from support.tables import cases

FILE = "demo.yaml"


def _good() -> Json:
    """Return a manifest without findings."""
    config = a_config(gcsFaultToleranceOptions={"redisAddress": "redis:6379"})
    config["headGroupSpec"]["rayStartParams"] = {"num-cpus": "0"}
    spec = {
        "serveConfigV2": a_serve_config(),
        "rayClusterConfig": config,
        "upgradeStrategy": copy.deepcopy(STEPS),
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "demo"},
        "spec": spec,
    }


def _lint(body: Json) -> list[LintFinding]:
    return [
        each
        for document in manifests.parse(yaml.safe_dump(body), FILE)
        for each in lint.lint(document, BETA)
    ]


def _group(body: Json) -> Json:
    return body["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]


def _misspell(body: Json) -> None:
    _group(body)["replica"] = 2


def _mistype(body: Json) -> None:
    _group(body)["maxReplicas"] = "many"


def _forget(body: Json) -> None:
    del body["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]


def _choose(body: Json) -> None:
    body["spec"]["rayClusterConfig"]["autoscalerOptions"] = {"upscalingMode": "Fast"}


def _overstep(body: Json) -> None:
    body["spec"]["upgradeStrategy"]["clusterUpgradeOptions"]["stepSizePercent"] = 30


def _turn_around(body: Json) -> None:
    _group(body).update(minReplicas=9, maxReplicas=8)


def _serve_nonsense(body: Json) -> None:
    body["spec"]["serveConfigV2"] = "applications: ["


def _forget_the_import_path(body: Json) -> None:
    body["spec"]["serveConfigV2"] = "applications: [{name: app}]"


def _deadline(body: Json) -> None:
    body["metadata"]["annotations"] = {"raybus.io/progress-deadline": "soon"}


def _old_version(body: Json) -> None:
    body["apiVersion"] = "ray.io/v1alpha1"


GROUP = "spec.rayClusterConfig.workerGroupSpecs[0]"
OPTIONS = "spec.upgradeStrategy.clusterUpgradeOptions"


@cases(
    ("change", "field", "message"),
    {
        "a misspelt field": (
            _misspell,
            f"{GROUP}.replica",
            "unknown field; did you mean replicas?",
        ),
        "another type": (_mistype, f"{GROUP}.maxReplicas", "must be a whole number, not 'many'"),
        "a missing field": (_forget, "spec.rayClusterConfig.headGroupSpec.template", "is required"),
        "an unknown value": (
            _choose,
            "spec.rayClusterConfig.autoscalerOptions.upscalingMode",
            "is none of Default",
        ),
        "a step too far": (
            _overstep,
            f"{OPTIONS}.stepSizePercent",
            "less than or equal to maxSurgePercent",
        ),
        "bounds that cross": (_turn_around, f"{GROUP}.minReplicas", "minReplicas"),
        "a Serve config": (_serve_nonsense, "spec.serveConfigV2", "cannot be read as YAML"),
        "a field of the Serve config": (
            _forget_the_import_path,
            "spec.serveConfigV2.applications[0].import_path",
            "Required value",
        ),
        "an annotation": (
            _deadline,
            "metadata.annotations.raybus.io/progress-deadline",
            "is not a positive duration",
        ),
        "an old version": (_old_version, "apiVersion", "should be ray.io/v1"),
    },
)
def test_an_error_names_field_and_line(
    change: Callable[[Json], None], field: str, message: str
) -> None:
    body = _good()
    change(body)
    wrong = [each for each in _lint(body) if each.level is LintLevel.ERROR]
    assert [each.field for each in wrong] == [field]
    assert message in wrong[0].text
    key = field.rpartition(".")[2] if "/" not in field else "raybus.io/progress-deadline"
    key = "serveConfigV2" if "serveConfigV2" in field else key
    lines = yaml.safe_dump(body).splitlines()
    assert "required" in message or key in lines[wrong[0].line - 1]


def test_a_good_manifest_has_no_finding() -> None:
    assert _lint(_good()) == []


def _no_port(body: Json) -> None:
    container: Json = body["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"][
        "containers"
    ][0]
    container["ports"] = [{"name": "dashboard", "containerPort": 8265}]


def _latest(body: Json) -> None:
    _group(body)["template"]["spec"]["containers"][0]["image"] = "rayproject/ray"


def _mismatch(body: Json) -> None:
    body["spec"]["rayClusterConfig"]["rayVersion"] = "2.40.0"


def _old_ray(body: Json) -> None:
    body["spec"]["rayClusterConfig"]["rayVersion"] = "2.8.0"


def _bare(body: Json) -> None:
    del _group(body)["template"]["spec"]["containers"][0]["resources"]


def _odd_step(body: Json) -> None:
    body["spec"]["upgradeStrategy"]["clusterUpgradeOptions"]["stepSizePercent"] = 7


def _slow(body: Json) -> None:
    body["spec"]["upgradeStrategy"]["clusterUpgradeOptions"]["intervalSeconds"] = 3600


def _few(body: Json) -> None:
    _group(body).update(replicas=0)


def _at_once(body: Json) -> None:
    body["spec"]["rayClusterDeletionDelaySeconds"] = 0


def _asking(options: str, **spec: bool) -> Callable[[Json], None]:
    def change(body: Json) -> None:
        body["spec"] |= {"serveConfigV2": options + a_serve_config(), **spec}

    return change


def _at_9000_on_the_head(body: Json) -> None:
    _asking("http_options: {port: 9000}\n")(body)
    container: Json = body["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]
    container["containers"][0]["ports"] = [{"name": "serve", "containerPort": 9000}]


@cases(
    ("change", "message"),
    {
        "another port": (_asking("http_options: {port: 9000}\n"), "asked at port 8000"),
        "of the head alone": (_at_9000_on_the_head, "{name: serve, containerPort: 9000}"),
        "no proxy": (_asking("proxy_location: Disabled\n"), "no pod takes requests"),
        "proxies on heads": (_asking("proxy_location: HeadOnly\n"), "are never Ready"),
        "a proxy that is excluded": (
            _asking("proxy_location: HeadOnly\n", excludeHeadPodFromServeSvc=True),
            "keeps requests from it",
        ),
        "no port": (_no_port, "no port named serve"),
        "no tag": (_latest, "may be another image tomorrow"),
        "another Ray": (_mismatch, "rayVersion is 2.40.0"),
        "an old Ray": (_old_ray, "rayVersion 2.8.0 is older than 2.9"),
        "no resources": (_bare, "no resources"),
        "an odd step": (_odd_step, "15 moves"),
        "hours": (_slow, "moves its traffic for 600 min"),
        "fewer than the least": (_few, "less than minReplicas 1"),
        "no time to go back": (_at_once, "raybus undo"),
    },
)
def test_advice_is_no_error(change: Callable[[Json], None], message: str) -> None:
    body = _good()
    change(body)
    found = _lint(body)
    assert {each.level for each in found} == {LintLevel.ADVICE}
    assert any(message in each.text for each in found)


def test_a_key_that_stands_twice_is_found() -> None:
    text = "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: a}\nspec:\n  rayVersion: a\n  rayVersion: b\n"
    found = [each for document in manifests.parse(text, FILE) for each in lint.lint(document, BETA)]
    assert "demo.yaml:6: error: spec.rayVersion: occurs twice; only the last value counts" in map(
        cli.format_line, found
    )


def test_lists_and_other_kinds_are_read() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [_good(), {"kind": "ConfigMap"}]}
    documents = manifests.parse(yaml.safe_dump(inner) + "---\n---\nkind: Secret\n", FILE)
    assert [each.kind for each in documents] == ["RayService", "ConfigMap", "Secret"]
    assert documents[0].find_line(("spec", "serveConfigV2")) > 1


def test_the_exit_code_separates_errors_from_advice(golden: Golden) -> None:
    body = _good()
    _misspell(body)
    _bare(body)
    bad = CliRunner().invoke(main.build("lint"), ["lint", "-f", "-"], input=yaml.safe_dump(body))
    other = _good()
    _bare(other)
    fair = CliRunner().invoke(main.build("lint"), ["lint", "-f", "-"], input=yaml.safe_dump(other))
    none = CliRunner().invoke(main.build("lint"), ["lint", "-f", "-"], input="kind: Secret\n")
    assert (bad.exit_code, fair.exit_code, none.exit_code) == (1, 0, 2)
    golden.check("cli/lint.txt", bad.output + fair.output)


@pytest.mark.parametrize(
    ("annotations", "is_wrong"),
    [({labels.ROUTE_PERMITS: "demo"}, False), ({labels.ROUTE_PERMITS: "other"}, True), ({}, True)],
)
def test_a_route_beside_the_service_that_names_it_must_agree(
    annotations: Json, *, is_wrong: bool
) -> None:
    service = _good()
    service["metadata"] = {
        **service["metadata"],
        "name": "demo",
        "annotations": {labels.HTTP_ROUTE: "mine"},
    }
    route: Json = {
        "kind": "HTTPRoute",
        "metadata": {"name": "mine", "annotations": annotations},
        "spec": {"rules": [{}]},
    }
    documents = manifests.parse(yaml.safe_dump_all([service, route]), FILE)
    found = [
        each
        for each in lint.lint(documents[0], BETA, beside=documents)
        if each.level is LintLevel.ERROR
    ]
    assert bool(found) is is_wrong
    assert all(
        "metadata.annotations" in each.field and "HTTPRoute mine may not be used" in each.text
        for each in found
    )


def _job(**spec: object) -> Json:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "train"},
        "spec": {"entrypoint": "python a.py", "rayClusterSpec": a_cluster_spec(), **spec},
    }


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"entrypont": "a"}, "spec.entrypont", "did you mean entrypoint?"),
        ({"submissionMode": "SSH"}, "spec.submissionMode", "is none of K8sJobMode"),
        ({"backoffLimit": -1}, "spec.backoffLimit", "backoffLimit must be a positive integer"),
        ({"suspend": True}, "spec", "shutdownAfterJobFinishes set to false"),
        ({"runtimeEnvYAML": "[a"}, "spec", "RuntimeEnvYAML"),
    ],
)
def test_a_rayjob_is_held_to_its_schema_and_to_the_rules_of_raybus(
    spec: Json, field: str, message: str
) -> None:
    (error,) = [each for each in _lint(_job(**spec)) if each.level is LintLevel.ERROR]
    assert (error.field.startswith(field), message in error.text) == (True, True), error


def test_the_cluster_of_a_rayjob_gets_the_advice_of_a_cluster() -> None:
    findings = _lint(_job())
    assert {finding.level for finding in findings} == {LintLevel.ADVICE}
    assert [finding.field for finding in findings] == [
        f"spec.rayClusterSpec.{group}.template.spec.containers[0].resources"
        for group in ("headGroupSpec", "workerGroupSpecs[0]")
    ]


def test_a_rayjob_on_a_shared_cluster_has_no_cluster_to_advise_on() -> None:
    selector = {"ray.io/cluster": "shared"}
    assert _lint(_job(rayClusterSpec=None, clusterSelector=selector)) == []


def _cron_job(name: str = "nightly", **spec: object) -> Json:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": _job()["spec"], **spec},
    }


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (_cron_job(shedule="x"), "spec.shedule", "did you mean schedule?"),
        (_cron_job(schedule="0 25 * * *"), "spec", "end of range (25) above maximum (23)"),
        (_cron_job(timeZone="Mars/Olympus"), "spec", "unknown time zone Mars/Olympus"),
        (_cron_job(name="n" * 40), "spec", "no more than 36 characters"),
        (
            _cron_job(jobTemplate={**_job()["spec"], "ttlSecondsAfterFinished": -1}),
            "spec",
            "invalid RayJob template",
        ),
    ],
)
def test_a_raycronjob_is_held_to_its_schema_and_to_the_rules_of_raybus(
    body: Json, field: str, message: str
) -> None:
    (error,) = [each for each in _lint(body) if each.level is LintLevel.ERROR]
    assert (error.field.startswith(field), message in error.text) == (True, True), error


def test_the_cluster_of_a_raycronjob_gets_the_advice_of_a_cluster() -> None:
    findings = _lint(_cron_job())
    assert {finding.level for finding in findings} == {LintLevel.ADVICE}
    assert findings[0].field.startswith("spec.jobTemplate.rayClusterSpec.headGroupSpec")
