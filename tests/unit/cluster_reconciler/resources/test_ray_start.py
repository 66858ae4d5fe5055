"""The start command, byte for byte (acceptance cases 85-93, 101)."""

from cluster_reconciler.config import Config
from common import labels
from common.api.opaque import Json
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import head_of, ray_container_of, ray_start_of, worker_of
from support.tables import cases

ULIMIT = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "
SIZE: Json = {
    "limits": {"cpu": "1500m", "memory": "2Gi"},
    "requests": {"cpu": "1500m", "memory": "2Gi"},
}
PLAIN_HEAD = (
    "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  "
    "--metrics-export-port=8080 "
)


def a_sized_head(resources: Json, params: dict[str, str] | None = None) -> Json:
    return a_head(
        template=a_template(a_container(resources=resources)), ray_start_params=params or {}
    )


def flags_of(head: Json) -> list[str]:
    """Return the head's flags, without those that every head has."""
    every = PLAIN_HEAD.split()
    return [
        part
        for part in ray_start_of(head_of(a_ray_cluster(head=head))).split()
        if part not in every
    ]


def test_case_85_golden_head_command() -> None:
    cluster = a_ray_cluster(
        head=a_sized_head(SIZE),
        enable_in_tree_autoscaling=True,
        gcs_fault_tolerance_options={"redisPassword": {"value": "secret"}},
    )
    assert ray_start_of(head_of(cluster)) == (
        "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  "
        "--memory=2147483648  --metrics-export-port=8080  --no-monitor  --num-cpus=2  "
        "--redis-password=$REDIS_PASSWORD "
    )


def test_case_85_without_autoscaling_and_redis() -> None:
    assert ray_start_of(head_of(a_ray_cluster(head=a_sized_head(SIZE)))) == (
        "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  "
        "--memory=2147483648  --metrics-export-port=8080  --num-cpus=2 "
    )


def test_golden_worker_command() -> None:
    group = a_group("small", template=a_template(a_container(resources=SIZE)))
    cluster = a_ray_cluster("demo", groups=[group], metadata={"namespace": "ns1"})
    assert ray_start_of(worker_of(cluster)) == (
        "ray start  --address=demo-head-svc.ns1.svc.cluster.local:6379  --block  "
        "--dashboard-agent-listen-port=52365  --memory=2147483648  --metrics-export-port=8080  --num-cpus=2 "
    )


def test_workers_follow_the_heads_port_name_and_domain() -> None:
    head = a_head(ray_start_params={"port": "7000"}, head_service={"metadata": {"name": "mine"}})
    pod = worker_of(a_ray_cluster(head=head), Config(cluster_domain="k8s.local"))
    assert "--address=mine.ns.svc.k8s.local:7000" in ray_start_of(pod)


@cases(
    ("resources", "params", "flags"),
    {
        "no resources, no flags": ({}, {}, []),
        "case 86: a CPU request is rounded up": (
            {"requests": {"cpu": "200m"}},
            {},
            ["--num-cpus=1"],
        ),
        "case 86: a memory request does not count": ({"requests": {"memory": "1Gi"}}, {}, []),
        "a zero limit does not count": (
            {"limits": {"cpu": "0"}, "requests": {"cpu": "3"}},
            {},
            ["--num-cpus=3"],
        ),
        "a bare number is a quantity": ({"limits": {"cpu": 2}}, {}, ["--num-cpus=2"]),
        "what the user sets stays": ({"limits": {"cpu": "4"}}, {"num-cpus": "0"}, ["--num-cpus=0"]),
        "case 87: GPUs": ({"limits": {"nvidia.com/gpu": "2"}}, {}, ["--num-gpus=2"]),
        "case 87: the first kind by name": (
            {"limits": {"nvidia.com/gpu": "2", "amd.com/gpu": "1"}},
            {},
            ["--num-gpus=1"],
        ),
        "a slice of a GPU counts, none of them does not": (
            {"limits": {"amd.com/gpu": "0", "nvidia.com/mig-1g.5gb": "3"}},
            {},
            ["--num-gpus=3"],
        ),
        "case 88: an accelerator": (
            {"limits": {"google.com/tpu": "4"}},
            {},
            ["""--resources='{"TPU":4}'"""],
        ),
        "case 88: beside the user's resources": (
            {"limits": {"google.com/tpu": "4"}},
            {"resources": """'{"a":1}'"""},
            ["""--resources='{"TPU":4,"a":1}'"""],
        ),
        "one accelerator, the first by name": (
            {"limits": {"google.com/tpu": "4", "aws.amazon.com/neuroncore": "2"}},
            {},
            ["""--resources='{"neuron_cores":2}'"""],
        ),
        "the user's own accelerator stays": (
            {"limits": {"google.com/tpu": "4"}},
            {"resources": '"{"TPU": 1}"'},
            ["""--resources="{"TPU":""", '1}"'],
        ),
        "beside unreadable resources nothing is derived": (
            {"limits": {"google.com/tpu": "4", "nvidia.com/gpu": "1"}},
            {"resources": "nonsense"},
            ["--resources=nonsense"],
        ),
    },
)
def test_flags_from_resources(resources: Json, params: dict[str, str], flags: list[str]) -> None:
    assert flags_of(a_sized_head(resources, params)) == flags


@cases(
    ("params", "flags"),
    {
        "case 89: a boolean option": (
            {"include-dashboard": "false"},
            ["--include-dashboard=false"],
        ),
        "another boolean option": ({"log-color": "True"}, ["--log-color=True"]),
        "and the third": ({"include-log-monitor": "false"}, ["--include-log-monitor=false"]),
        "case 89: a flag that is off": ({"foo": "false"}, []),
        "case 89: a flag that is on": ({"foo": "True"}, ["--foo"]),
        "shell text is left alone": ({"foo": "$BAR"}, ["--foo=$BAR"]),
    },
)
def test_flags_from_params(params: dict[str, str], flags: list[str]) -> None:
    assert flags_of(a_sized_head({}, params)) == flags


def test_params_that_the_user_may_set_and_the_one_they_may_not() -> None:
    params = {
        "dashboard-host": "::",
        "metrics-export-port": "9",
        "dashboard-agent-listen-port": "10",
        "block": "false",
    }
    assert ray_start_of(head_of(a_ray_cluster(head=a_head(ray_start_params=params)))) == (
        "ray start --head  --block  --dashboard-agent-listen-port=10  --dashboard-host=::  --metrics-export-port=9 "
    )


def test_case_101_top_level_resources_and_labels() -> None:
    head = a_head(
        resources={"cpu": "2", "nvidia.com/gpu": "1", "custom": "3"}, labels={"b": "", "a": "b"}
    )
    assert flags_of(head) == [
        "--labels=a=b,b=",
        "--num-cpus=2",
        "--num-gpus=1",
        """--resources='{"custom":3}'""",
    ]


@cases(
    ("command", "args", "expected"),
    {
        "no command of their own": (None, None, ULIMIT + PLAIN_HEAD),
        "case 90: theirs comes first": (["echo"], ["hi"], f" echo  hi  && {ULIMIT}{PLAIN_HEAD}"),
        "arguments alone": ([], ["echo hi"], f" echo hi  && {ULIMIT}{PLAIN_HEAD}"),
        "two arguments are not the text that is searched": (
            ["ray", "start"],
            [],
            f" ray  start  && {ULIMIT}{PLAIN_HEAD}",
        ),
    },
)
def test_container_command(
    command: list[str] | None, args: list[str] | None, expected: str
) -> None:
    pod = head_of(
        a_ray_cluster(head=a_head(template=a_template(a_container(command=command, args=args))))
    )
    assert ray_container_of(pod)["command"] == ["/bin/bash", "-c", "--"]
    assert ray_container_of(pod)["args"] == [expected]


@cases(
    ("cluster_annotations", "template_annotations", "args"),
    {
        "case 91: annotation on the cluster": (
            {labels.OVERWRITE_CONTAINER_CMD: "TRUE"},
            {},
            ["mine"],
        ),
        "annotation on the template": ({}, {labels.OVERWRITE_CONTAINER_CMD: "True"}, ["mine"]),
        "case 92: the user starts Ray": ({}, {}, ["sleep 1; ray start --head"]),
    },
)
def test_command_left_alone(
    cluster_annotations: dict[str, str], template_annotations: dict[str, str], args: list[str]
) -> None:
    template = a_template(
        a_container(command=["sh", "-c"], args=args), annotations=template_annotations
    )
    pod = head_of(a_ray_cluster(head=a_head(template=template), annotations=cluster_annotations))
    assert ray_container_of(pod)["command"] == ["sh", "-c"]
    assert ray_container_of(pod)["args"] == args
    assert ray_start_of(pod) == PLAIN_HEAD


def test_case_91_pods_carry_the_clusters_annotation() -> None:
    pod = worker_of(
        a_ray_cluster(annotations={labels.OVERWRITE_CONTAINER_CMD: "True", "other": "x"})
    )
    assert pod["metadata"]["annotations"] == {labels.OVERWRITE_CONTAINER_CMD: "true"}


def test_case_93_login_shell() -> None:
    pod = worker_of(a_ray_cluster(), Config(uses_login_shell=True))
    assert ray_container_of(pod)["command"] == ["/bin/bash", "-cl", "--"]
