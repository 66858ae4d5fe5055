"""Labels of pods and their precedence (spec raycluster §2.1, §11.3; acceptance cases 51, 67, 72, 96, 101-103)."""

from hypothesis import given
from hypothesis import strategies as st

from cluster_reconciler.config import Config
from cluster_reconciler.resources.node import FIXED, ReplicaIndex
from common import labels
from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from support.builders.ray_cluster import a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import head_of, worker_of
from support.tables import cases

HEAD = {
    "ray.io/is-ray-node": "yes",
    "ray.io/cluster": "c",
    "ray.io/node-type": "head",
    "ray.io/group": "headgroup",
    "ray.io/identifier": "c-head",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
WORKER = {
    **HEAD,
    "ray.io/node-type": "worker",
    "ray.io/group": "g",
    "ray.io/identifier": "c-worker",
    "ray.io/worker-group-replica-index": "0",
}
OLD = Config(gates=BETA - {FeatureGate.MULTI_HOST_INDEXING})


@cases(
    ("head", "spec", "config", "differences"),
    {
        "the built-in ones": (a_head(), {}, Config(), {}),
        "case 101: the group's labels": (a_head(labels={"a": "b"}), {}, Config(), {"a": "b"}),
        "the group wins over the template": (
            a_head(template=a_template(labels={"a": "template"}), labels={"a": "group"}),
            {},
            Config(),
            {"a": "group"},
        ),
        "case 102: what we select by stays": (
            a_head(
                template=a_template(
                    labels={"ray.io/cluster": "evil", "ray.io/group": "x", "ray.io/node-type": "y"}
                )
            ),
            {},
            Config(),
            {},
        ),
        "case 102: the others may be changed": (
            a_head(
                template=a_template(
                    labels={"app.kubernetes.io/name": "x", "ray.io/identifier": "y"}
                )
            ),
            {},
            Config(),
            {"app.kubernetes.io/name": "x", "ray.io/identifier": "y"},
        ),
        "case 103: the operator only adds": (
            a_head(template=a_template(labels={"team": "y"})),
            {},
            Config(default_pod_labels={"team": "x", "site": "z"}),
            {"team": "y", "site": "z"},
        ),
        "case 96: the head of a service is let in by hand": (
            a_head(template=a_template(labels={"ray.io/serve": "true"})),
            {"labels": {labels.ORIGIN_KIND: "RayService"}},
            Config(),
            {"ray.io/serve": "false"},
        ),
        "the cluster's labels are not copied": (a_head(), {"labels": {"team": "x"}}, Config(), {}),
    },
)
def test_head(head: Json, spec: Json, config: Config, differences: dict[str, str]) -> None:
    assert head_of(a_ray_cluster(head=head, **spec), config)["metadata"]["labels"] == {
        **HEAD,
        **differences,
    }


@cases(
    ("group", "replica", "differences"),
    {
        "the first replica": (a_group(), ReplicaIndex(0), {}),
        "case 51: the fifth replica": (
            a_group(),
            ReplicaIndex(4),
            {"ray.io/worker-group-replica-index": "4"},
        ),
        "case 67: a host of a replica of several": (
            a_group(num_of_hosts=4),
            ReplicaIndex(1, host=3, replica_name="g-bcdfg"),
            {
                "ray.io/worker-group-replica-index": "1",
                "ray.io/worker-group-replica-name": "g-bcdfg",
                "ray.io/replica-host-index": "3",
            },
        ),
    },
)
def test_worker(group: Json, replica: ReplicaIndex, differences: dict[str, str]) -> None:
    pod = worker_of(a_ray_cluster(groups=[group]), replica=replica)
    assert pod["metadata"]["labels"] == {**WORKER, **differences}


def test_case_72_no_indexes_with_the_gate_off() -> None:
    pod = worker_of(
        a_ray_cluster(groups=[a_group(num_of_hosts=4)]),
        OLD,
        ReplicaIndex(1, host=3, replica_name="x"),
    )
    without = {key: value for key, value in WORKER.items() if key != labels.REPLICA_INDEX}
    assert pod["metadata"]["labels"] == without


def test_case_96_workers_of_a_service_may_serve() -> None:
    pod = worker_of(a_ray_cluster(labels={labels.ORIGIN_KIND: "RayService"}))
    assert pod["metadata"]["labels"] == {**WORKER, "ray.io/serve": "true"}


LABELS = st.dictionaries(
    st.sampled_from([*WORKER, labels.SERVE, "team"]), st.sampled_from(["x", "y"])
)


@given(template=LABELS, group=LABELS, defaults=LABELS)
def test_no_label_of_a_user_hides_a_pod_from_its_cluster(
    template: dict[str, str], group: dict[str, str], defaults: dict[str, str]
) -> None:
    cluster = a_ray_cluster(groups=[a_group(template=a_template(labels=template), labels=group)])
    found = worker_of(cluster, Config(default_pod_labels=defaults))["metadata"]["labels"]
    assert {key: found[key] for key in FIXED} == {key: WORKER[key] for key in FIXED}
