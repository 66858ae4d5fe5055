"""The init container that waits for the head (spec raycluster §11.8; acceptance case 94)."""

import subprocess
from pathlib import Path

from cluster_reconciler.config import Config
from common.api.opaque import Json
from support.builders.ray_cluster import IMAGE, a_container, a_group, a_ray_cluster, a_template
from support.builders.ray_pod import head_of, worker_of
from support.tables import cases

ADDRESS = "c-head-svc.ns.svc.cluster.local:6379"
SIZE = {"cpu": "200m", "memory": "256Mi"}


def test_case_94_last_and_as_the_ray_container_of_the_template() -> None:
    own: Json = {"name": "MINE", "value": "1"}
    mount: Json = {"name": "m", "mountPath": "/m"}
    container = a_container(
        env=[own],
        volume_mounts=[mount],
        image_pull_policy="Always",
        security_context={"runAsUser": 1},
    )
    template = a_template(container, init_containers=[a_container("first")])
    pod = worker_of(
        a_ray_cluster(groups=[a_group(template=template)], gcs_fault_tolerance_options={})
    )
    first, last = pod["spec"]["initContainers"]
    (script,) = last.pop("args")
    assert first["name"] == "first"
    assert f"ray health-check --address {ADDRESS}" in script
    assert last == {
        "name": "wait-gcs-ready",
        "image": IMAGE,
        "imagePullPolicy": "Always",
        "securityContext": {"runAsUser": 1},
        "command": ["/bin/bash", "-c", "--"],
        "env": [
            own,
            {"name": "FQ_RAY_IP", "value": ADDRESS[:-5]},
            {"name": "RAY_IP", "value": "c-head-svc"},
        ],
        "volumeMounts": [mount],
        "resources": {"limits": SIZE, "requests": SIZE},
    }


def test_case_94_absent_when_switched_off_and_on_heads() -> None:
    assert (
        "initContainers"
        not in worker_of(a_ray_cluster(), Config(injects_init_container=False))["spec"]
    )
    assert "initContainers" not in head_of(a_ray_cluster())["spec"]


@cases(
    ("seconds", "outcomes", "printed"),
    {
        "ready at once": (0, [0], ["GCS is ready."]),
        "errors are hidden at first": (
            0,
            [1, 0],
            ["0 seconds elapsed: Waiting for GCS to be ready.", "GCS is ready."],
        ),
        "errors are shown after two minutes": (
            121,
            [1, 0],
            [
                "oh no",
                "121 seconds elapsed: Still waiting for GCS to be ready. For troubleshooting, refer to the FAQ at "
                "https://docs.ray.io/en/master/cluster/kubernetes/troubleshooting.html.",
                "oh no",
                "GCS is ready. Any error messages above can be safely ignored.",
            ],
        ),
    },
)
def test_case_94_script(
    tmp_path: Path, seconds: int, outcomes: list[int], printed: list[str]
) -> None:
    """Run the script itself, with a `ray` and a `sleep` that answer at once."""
    pod = worker_of(a_ray_cluster())
    script = pod["spec"]["initContainers"][0]["args"][0].replace(
        "SECONDS=0", f"SECONDS={seconds}", 1
    )
    (tmp_path / "left").write_text(" ".join(map(str, outcomes)))
    fakes = "sleep() { :; }\nray() { echo 'oh no'; read -r first rest < left; echo \"$rest\" > left; return $first; }\n"
    done = subprocess.run(
        ["bash", "-c", fakes + script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    assert done.stdout.splitlines() == printed
