"""What stands around a take-over: both operators at once, webhooks, jobs."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from raybus_cli.doctor.facts import Lease
from raybus_cli.doctor.operator import Operator
from raybus_cli.migrating import check
from raybus_cli.migrating.survey import Installation, Job, Surroundings, WebhookConfiguration
from support.builders.snapshots import NOW


def an_operator(
    name: str,
    namespace: str,
    *,
    ready: int = 1,
    environment: dict[str, str] | None = None,
    **flags: str,
) -> Operator:
    return Operator(
        namespace=namespace,
        name=name,
        image=f"{name}:v1",
        version="v1",
        replicas=ready,
        ready=ready,
        flags={key.replace("_", "-"): value for key, value in flags.items()},
        environment=environment or {},
    )


KUBERAY = an_operator("kuberay-operator", "ray-system")
WATCHER = an_operator("watcher", "raybus")
BESIDE = an_operator("watcher", "raybus", environment={"RAYBUS_LEASE_NAMESPACE": "ray-system"})
LEASE = msgspec.convert(
    {
        "metadata": {"name": "ray-operator-leader", "namespace": "ray-system"},
        "spec": {
            "holderIdentity": "kuberay-0",
            "renewTime": (NOW - timedelta(seconds=2)).isoformat(),
        },
    },
    Lease,
    strict=False,
)


@pytest.mark.parametrize(
    ("kuberay", "watcher", "expected", "text"),
    [
        pytest.param([KUBERAY], WATCHER, "change", "share no Lease", id="both, each on its own"),
        pytest.param([KUBERAY], BESIDE, "note", "held by kuberay-0", id="both, on one Lease"),
        pytest.param(
            [an_operator("kuberay-operator", "ray-system", enable_leader_election="false")],
            BESIDE,
            "change",
            "share no Lease",
            id="KubeRay without a Lease",
        ),
        pytest.param(
            [an_operator("kuberay-operator", "ray-system", watch_namespace="batch, jobs")],
            an_operator("watcher", "raybus", environment={"RAYBUS_WATCH_NAMESPACES": "serving"}),
            "note",
            "KubeRay in batch, jobs, raybus in serving",
            id="in namespaces of their own",
        ),
        pytest.param(
            [an_operator("kuberay-operator", "ray-system", watch_namespace="batch,serving")],
            an_operator("watcher", "raybus", environment={"RAYBUS_WATCH_NAMESPACES": "serving"}),
            "change",
            "share no Lease",
            id="with a common namespace",
        ),
        pytest.param(
            [an_operator("kuberay-operator", "ray-system", ready=0)],
            WATCHER,
            "",
            "",
            id="KubeRay at 0",
        ),
        pytest.param([KUBERAY], None, "", "", id="raybus is not there yet"),
        pytest.param([], None, "note", "no KubeRay operator", id="neither"),
        pytest.param(None, None, "unread", "may not be listed", id="no permission to list"),
    ],
)
def test_both_operators(
    kuberay: list[Operator] | None, watcher: Operator | None, expected: str, text: str
) -> None:
    installed = Installation(
        kuberay=kuberay, raybus={"watcher": watcher} if watcher else {}, leases=[LEASE]
    )
    found = list(check.operators(installed, now=NOW))
    assert [each.level.value for each in found] == ([expected] if expected else [])
    assert all(text in each.text for each in found)


def hooks(
    *, policy: str = "Fail", resources: tuple[str, ...] = ("rayclusters",), service: bool = True
) -> Surroundings:
    client: dict[str, Any] = (
        {"service": {"name": "s"}} if service else {"url": "https://example.org"}
    )
    hook = {
        "name": "h",
        "failurePolicy": policy,
        "clientConfig": client,
        "rules": [{"apiGroups": ["ray.io"], "resources": list(resources)}],
    }
    body = {"metadata": {"name": "kuberay"}, "webhooks": [hook]}
    return Surroundings(
        webhooks=[("ValidatingWebhookConfiguration", msgspec.convert(body, WebhookConfiguration))]
    )


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        pytest.param(hooks(), ["change"], id="KubeRay's"),
        pytest.param(hooks(policy="Ignore"), [], id="one that is ignored when it is away"),
        pytest.param(hooks(resources=("rayjobs",)), [], id="of jobs alone"),
        pytest.param(hooks(service=False), [], id="somebody else's, elsewhere"),
        pytest.param(Surroundings(webhooks=None), ["unread"], id="no permission to list"),
        pytest.param(Surroundings(webhooks=[]), [], id="none"),
    ],
)
def test_webhooks(around: Surroundings, expected: list[str]) -> None:
    assert [each.level.value for each in check.webhooks(around)] == expected


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        pytest.param({}, {"jobDeploymentStatus": "Running"}, "unsupported", id="it runs"),
        pytest.param({}, {}, "unsupported", id="not begun"),
        pytest.param({}, {"jobDeploymentStatus": "Complete"}, "nothing", id="it is over"),
        pytest.param({"managedBy": "kueue.x-k8s.io/multikueue"}, {}, "nothing", id="Kueue's"),
    ],
)
def test_jobs_are_not_run(spec: dict[str, Any], status: dict[str, Any], expected: str) -> None:
    job = msgspec.convert(
        {"metadata": {"name": "j", "namespace": "n"}, "spec": spec, "status": status}, Job
    )
    assert [(each.name, each.verdict) for each in check.jobs(Surroundings(jobs=[job]))] == [
        ("j", expected)
    ]


def test_a_schedule_counts_unless_it_is_suspended() -> None:
    bodies = [
        {"metadata": {"name": name}, "spec": {"suspend": name == "off"}} for name in ("on", "off")
    ]
    found = check.jobs(Surroundings(cron_jobs=[msgspec.convert(each, Job) for each in bodies]))
    assert {each.name: each.verdict for each in found} == {"on": "unsupported", "off": "nothing"}
