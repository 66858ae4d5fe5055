from cluster_reconciler import children, plan
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from common import labels
from common.feature_gates import FeatureGate
from common.runtime.actions import Create, EmitEvent
from support.builders.pods import (
    NOW,
    a_head_pod,
    a_head_service,
    actions_of,
    an_observation,
    some_workers,
)
from support.builders.ray_cluster import a_container, a_group, a_ray_cluster
from support.tables import cases

CONFIG = Config()


def kinds(observed: Observed) -> list[str]:
    return [
        " ".join(str(action).split()[:2])
        for action in actions_of(plan.make_plan(observed, now=observed.now))
    ]


@cases(
    ("observed", "actions"),
    {
        "nothing is there yet": (
            an_observation(head_services=()),
            ["create Service"] + 4 * ["create Pod"],
        ),
        "all is there": (an_observation(a_head_pod(), *some_workers(3)), []),
        "a failed head holds workers back": (
            an_observation(a_head_pod(phase="Failed")),
            ["delete Pod"],
        ),
        "too many workers": (an_observation(a_head_pod(), *some_workers(5)), 2 * ["delete Pod"]),
        "another's cluster": (
            an_observation(cluster=a_ray_cluster(managed_by="kueue.x-k8s.io/multikueue")),
            [],
        ),
        "a cluster that goes": (
            an_observation(
                cluster=a_ray_cluster(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
            ),
            [],
        ),
        "an invalid spec": (
            an_observation(cluster=a_ray_cluster(groups=[a_group(min_replicas=5, max_replicas=1)])),
            ["event InvalidRayClusterSpec"],
        ),
    },
)
def test_actions(observed: Observed, actions: list[str]) -> None:
    assert kinds(observed) == actions


def test_identity_comes_first_then_services_then_the_head() -> None:
    cluster = a_ray_cluster(enable_in_tree_autoscaling=True, auth_options={}, groups=[])
    absent = {
        child.resource: child for child in children.list_children_to_read(cluster, CONFIG, token="")
    }
    observed = an_observation(cluster=cluster, absent=absent, head_services=())
    assert kinds(observed) == [
        *("create ServiceAccount", "create Role", "create RoleBinding", "create Secret"),
        *("create Service", "create Pod"),
    ]


def test_a_plan_made_twice_is_the_same_plan() -> None:
    observed = an_observation(head_services=())
    assert plan.make_plan(observed, now=observed.now) == plan.make_plan(observed, now=observed.now)


def test_the_head_remembers_its_spec() -> None:
    action = actions_of(plan.make_plan(an_observation(), now=NOW))[0]
    assert isinstance(action, Create)
    annotations: dict[str, str] = action.body["metadata"]["annotations"]
    assert annotations[labels.KUBERAY_VERSION] == CONFIG.version
    assert len(annotations[labels.RECREATE_HASH]) == 32


def test_serve_service_needs_a_port() -> None:
    template = {
        "spec": {
            "containers": [
                {"name": "r", "image": "i", "ports": [{"name": "gcs", "containerPort": 6379}]}
            ]
        }
    }
    cluster = a_ray_cluster(
        head={"template": template}, annotations={labels.ENABLE_SERVE_SERVICE: "true"}, groups=[]
    )
    found = plan.make_plan(
        an_observation(cluster=cluster, head_services=(a_head_service(),)), now=NOW
    )
    assert str(actions_of(found)[0]) == "refuse FailedToCreateService"
    assert not found.actions[0].is_side


def test_a_volume_is_claimed_after_the_services() -> None:
    template = {
        "spec": {"containers": [a_container(ports=[{"name": "gcs", "containerPort": 6379}])]}
    }
    cluster = a_ray_cluster(
        head={"template": template},
        annotations={labels.ENABLE_SERVE_SERVICE: "true"},
        groups=[],
        gcs_fault_tolerance_options={"backend": "rocksdb"},
    )
    absent = {
        child.resource: child for child in children.list_children_to_read(cluster, CONFIG, token="")
    }
    config = Config(gates=frozenset({*CONFIG.gates, FeatureGate.EMBEDDED_STORAGE}))
    observed = an_observation(cluster=cluster, absent=absent, head_services=(), config=config)
    steps = plan.make_plan(observed, now=NOW).actions
    made = [[" ".join(str(action).split()[:2]) for action in each.actions] for each in steps]
    assert made[:2] == [
        ["create Service", "refuse FailedToCreateService"],
        ["create PersistentVolumeClaim"],
    ]


def test_a_warning_names_its_cluster_once() -> None:
    group = a_group(
        "g", template={"spec": {"restartPolicy": "Always", "containers": [a_container()]}}
    )
    cluster = a_ray_cluster(
        enable_in_tree_autoscaling=True, autoscaler_options={"version": "v1"}, groups=[group]
    )
    events = [
        each.event
        for each in actions_of(plan.make_plan(an_observation(cluster=cluster), now=NOW))
        if isinstance(each, EmitEvent)
    ]
    (warning,) = [each for each in events if each.note.startswith("RayCluster spec warning")]
    assert warning.note == (
        "RayCluster spec warning ns/c: restartPolicy for worker groups [g] should be Never or unset when using autoscaler V1"
    )
