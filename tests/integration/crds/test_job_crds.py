"""RayJobs on a real API server and with kubectl behave as KubeRay's users expect (spec rayjob §2,
§26).

Acceptance cases 1-3, 17 and 18.
"""

from typing import Any

import pytest

from common.api.opaque import Json
from integration.crds.conftest import Kubectl
from support.builders.ray_job import a_cluster_spec

pytestmark = [pytest.mark.integration]

MANAGED_BY = (
    "the managedBy field value must be either 'ray.io/kuberay-operator' or "
    "'kueue.x-k8s.io/multikueue'"
)
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
RULES = [{"policy": "DeleteSelf", "condition": {"jobStatus": "SUCCEEDED"}}]
DELETE_SELF = {"policy": "DeleteSelf"}


def a_job(name: str, *, version: str = "v1", **spec: Any) -> Json:
    """Return the manifest of a RayJob."""
    full = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec(), **spec}
    return {
        "apiVersion": f"ray.io/{version}",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": full,
    }


def refusal(kubectl: Kubectl, verb: str, job: Json) -> str:
    """Return the message with which the API server refuses a RayJob."""
    done = kubectl.run(verb, "-f", "-", obj=job)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.acceptance("rayjob", 1)
def test_an_unknown_manager_is_rejected(kubectl: Kubectl) -> None:
    job = a_job("unknown", managedBy="invalid.com/controller")
    text = refusal(kubectl, "create", job)
    assert 'The RayJob "unknown" is invalid' in text
    assert MANAGED_BY in text


@pytest.mark.acceptance("rayjob", 2)
def test_the_manager_cannot_be_changed(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_job("fixed", managedBy=MULTIKUEUE))
    other = a_job("fixed", managedBy="ray.io/kuberay-operator")
    assert "the managedBy field is immutable" in refusal(kubectl, "apply", other)


@pytest.mark.acceptance("rayjob", 3)
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        pytest.param(
            {"onSuccess": DELETE_SELF, "onFailure": DELETE_SELF, "deletionRules": RULES},
            "legacy policies (onSuccess/onFailure) and deletionRules cannot be used together "
            "within the same deletionStrategy",
            id="both forms",
        ),
        pytest.param(
            {"onSuccess": DELETE_SELF},
            "deletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules "
            "field (cannot be empty)",
            id="half of the older form",
        ),
    ],
)
def test_a_deletion_strategy_has_one_form(kubectl: Kubectl, strategy: Json, message: str) -> None:
    assert message in refusal(kubectl, "create", a_job("strategy", deletionStrategy=strategy))


@pytest.mark.acceptance("rayjob", 17)
def test_an_unknown_submission_mode_is_rejected(kubectl: Kubectl) -> None:
    text = refusal(kubectl, "create", a_job("mode", submissionMode="Foo"))
    assert 'spec.submissionMode: Unsupported value: "Foo"' in text
    assert "SidecarMode" in text


@pytest.mark.acceptance("rayjob", 17)
def test_a_template_without_a_restart_policy_is_rejected_as_a_kubernetes_job(
    kubectl: Kubectl,
) -> None:
    """The event about the refused Kubernetes Job repeats this text."""
    template = {"spec": {"containers": [{"name": "submitter", "image": "ray"}]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "submitter"},
        "spec": {"template": template},
    }
    text = refusal(kubectl, "create", job)
    assert "spec.template.spec.restartPolicy: Required value" in text
    assert 'valid values: "OnFailure", "Never"' in text


@pytest.mark.acceptance("rayjob", 18)
def test_kubectl_prints_the_columns_of_kuberay(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_job("shown"))
    listed = kubectl.run("get", "rayjobs.v1.ray.io", "shown")
    headers = listed.stdout.splitlines()[0]
    assert " ".join(headers.split()) == (
        "NAME JOB STATUS DEPLOYMENT STATUS RAY CLUSTER NAME START TIME END TIME AGE"
    )
    assert listed.stderr == ""


@pytest.mark.acceptance("rayjob", 18)
def test_the_older_version_warns_that_it_is_deprecated(kubectl: Kubectl) -> None:
    kubectl.ok("apply", "-f", "-", obj=a_job("old"))
    listed = kubectl.run("get", "rayjobs.v1alpha1.ray.io", "old")
    assert " ".join(listed.stdout.splitlines()[0].split()) == "NAME AGE"
    assert "ray.io/v1alpha1 RayJob is deprecated; use ray.io/v1 RayJob" in listed.stderr
