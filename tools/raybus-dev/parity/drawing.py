"""Draws random cases: RayClusters with every relevant field, pods in every state, and changes.

A case depends only on the seed and its number, not on other cases. In all functions, `known` are
the feature gates that both operators know, and `gates` says which gates are enabled.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast

from cluster_reconciler import refusals
from common import labels
from common.api import ray_cluster, ray_job
from common.api.opaque import Body, Json
from common.clock import SystemClock
from common.feature_gates import FeatureGate
from common.validation import ray_job as job_rules
from parity.cases import Case, OperatorSettings, a_cluster, a_pod
from parity.rounds import KEEP, dated

SCHEDULERS: Final = ("volcano", "yunikorn", "kai-scheduler", "scheduler-plugins")
IMAGE: Final = "rayproject/ray:2.52.0"
GROUPS: Final = ("g", "gpu-group", "SmallGroup", "t" * 40)
NAMES: Final = ("c", "raycluster-kuberay", "n" * 47, "n" * 53)
INVALID_NAMES: Final = ("n" * 54, "1c", "c.d")
VERSIONS: Final = (
    "2.52.0",
    "2.52.0",
    "2.46.0",
    "2.55.1",
    "2.8.1",
    "",
    "nightly",
    "2.52",
    "v2.53.0",
)
SWITCHES: Final = (
    "ENABLE_INIT_CONTAINER_INJECTION", "ENABLE_PROBES_INJECTION", "ENABLE_GCS_FT_REDIS_CLEANUP",
    "ENABLE_RANDOM_POD_DELETE",
    "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", "ENABLE_LOGIN_SHELL",
    "ENABLE_DETERMINISTIC_HEAD_POD_NAME", "USE_INGRESS_ON_OPENSHIFT",
)  # fmt: skip
NEW_GATES: Final = (
    FeatureGate.NETWORK_POLICY,
    FeatureGate.EMBEDDED_STORAGE,
    FeatureGate.MTLS,
    FeatureGate.HISTORY_SERVER,
)
FROM_SECRET: Final = {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}}
NASTY_RESOURCES: Final = (
    '"{\\"a<b\\": 1, \\"c&d\\": 2}"',
    '"{\\"e>f\\": 1}"',
    '"{}"',
    "{",
    "",
    "'{\"x\": 4}'",
)


UNEDITED_FIELDS: Final = frozenset({"groupName", "managedBy", "backend"})
"""Fields that random edits do not change.

An edit of `groupName` could create two groups of the same name, and the API server rejects edits of
the other two.
"""
FIRST_ENTRY_LISTS: Final = frozenset({"workerGroupSpecs", "containers"})
"""Lists in which most random edits change only the first entry."""
NEVER_EMPTY_FIELDS: Final = frozenset({
    *UNEDITED_FIELDS, "name", "size", "sizeLimit", "mode", "version", "upscalingMode",
    "deletionPolicy", "pathType", "type", "protocol", "limits", "requests", "kind", "apiVersion",
})  # fmt: skip
"""Fields that random edits never make empty, because the API server rejects an empty value."""
NEVER_EMPTY_OBJECTS: Final = frozenset(
    {"headGroupSpec", "workerGroupSpecs", "template", "spec", "containers"}
)
"""Fields that random edits never make empty as a whole. Fields inside them may become empty."""

INVALID_ONE_IN: Final = 5
"""In one of this many cases, the RayCluster or RayJob may be invalid for raybus.

In other cases, an invalid object is drawn again, because most random specs would be invalid.
"""


class Drawer:
    """Draws random values for the fields of a manifest."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def one_in(self, number: int) -> bool:
        """Return true with a probability of 1 / `number`."""
        return self._random.randrange(number) == 0

    def pick(self, *values: Any) -> Any:
        """Return one of the values at random."""
        return self._random.choice(values)

    def unique(self, values: Sequence[Any], most: int) -> list[Any]:
        """Return up to `most` different values in random order."""
        return self._random.sample(values, self._random.randint(0, most))

    def some(self, choices: Json, rate: int = 3) -> Json:
        """Return a random subset of fields.

        Each field is included with a probability of 1 / `rate`. `choices` maps a field to a tuple
        of possible values, or to a function that draws a value.
        """
        drawn: Json = {}
        for name, choice in choices.items():
            if self.one_in(rate):
                drawn[name] = choice() if callable(choice) else self.pick(*choice)
        return drawn

    def several(self, make: Callable[[int], Any], most: int) -> list[Any]:
        """Return up to `most` items. `make` makes an item from its index."""
        return [make(number) for number in range(self._random.randint(0, most))]


def settings(d: Drawer, known: frozenset[str]) -> OperatorSettings:
    """Return a random configuration of an operator."""
    gates = {gate.value: False for gate in FeatureGate} | {
        FeatureGate.STATUS_CONDITIONS.value: not d.one_in(8),
        FeatureGate.DELETION_POLICY.value: not d.one_in(6),
        FeatureGate.MULTI_HOST_INDEXING.value: not d.one_in(4),
    }
    gates |= {gate.value: d.one_in(2) for gate in NEW_GATES if gate.value in known}
    environment = d.some(
        dict.fromkeys(SWITCHES, ("true", "false", "TRUE", "False", "1", "t", "")), 6
    )
    if d.one_in(8):
        environment["CLUSTER_DOMAIN"] = "example.org"
    more: Json = {}
    if d.one_in(6):
        sidecar = {"name": "logs", "image": "busybox", "env": [{"name": "A", "value": "<&>"}]}
        more = {
            "head_sidecars": [sidecar],
            "worker_sidecars": d.pick([], [sidecar, {"name": "more", "image": "busybox"}]),
            "container_envs": d.pick(
                [], [{"name": "RAY_ADDED", "value": "1"}, {"name": "RAY_ADDRESS", "value": "x"}]
            ),
            "pod_annotations": d.pick({}, {"example.org/a": "default"}),
            "pod_labels": d.pick({}, {"team": "default", "ray.io/cluster": "x"}),
        }
    return OperatorSettings(
        gates=gates,
        environment=environment,
        is_openshift=d.one_in(5),
        scheduler=d.pick("", "", "", *SCHEDULERS),
        **more,
    )


ENV: Final = (
    ("RAY_ADDRESS", "auto"), ("RAY_IP", "1.2.3.4"), ("FQ_RAY_IP", "x"), ("RAY_PORT", "1"),
    ("REDIS_PASSWORD", "pw"),
    ("RAY_USAGE_STATS_EXTRA_TAGS", "a=b"), ("RAY_USAGE_STATS_KUBERAY_IN_USE", "0"),
    ("RAY_gcs_rpc_server_reconnect_timeout_s", "9"),
    ("RAY_enable_autoscaler_v2", "1"), ("RAY_enable_autoscaler_v2", "true"),
    ("RAY_enable_autoscaler_v2", "0"), ("RAY_AUTH_MODE", "token"),
    ("RAY_AUTH_TOKEN", "t"), ("RAY_USE_TLS", "1"), ("RAY_TLS_SERVER_CERT", "/x"),
    ("RAY_external_storage_namespace", "ns1"), ("RAY_GCS_STORAGE", "x"),
    ("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "0"), ("RAY_CLOUD_INSTANCE_ID", "i"),
    ("RAY_NODE_TYPE_NAME", "n"), ("KUBERAY_GEN_RAY_START_CMD", "x"),
    ("RAY_TIMEOUT_MS_TASK_WAIT_FOR_DEATH_INFO", "1"), ("RAY_GCS_SERVER_REQUEST_TIMEOUT_SECONDS",
        "2"), ("PLAIN", "a <b> & c"), ("EMPTY", ""),
    ("RAY_SERVE_KV_TIMEOUT_S", "3"), ("REDIS_ADDRESS", "r"), ("POD_IP", "1"),
    ("RAY_CLUSTER_NAME", "x"),
)  # fmt: skip
REFUSED_ENV: Final = (("RAY_REDIS_ADDRESS", "redis:6379"), ("REDIS_USERNAME", "u"))
QUANTITIES: Final = (
    "1",
    "500m",
    "1000m",
    "2.5",
    "0",
    "1Gi",
    "1000Mi",
    "1.5Gi",
    "1e3",
    "100k",
    "3.7",
    "16",
)


def resources(d: Drawer) -> Json:
    """Return random resource limits and requests of a container."""
    names = (
        "cpu",
        "memory",
        "nvidia.com/gpu",
        "google.com/tpu",
        "aws.amazon.com/neuroncore",
        "ephemeral-storage",
        "amd.com/gpu",
        "example.org/x",
    )
    amounts = partial(
        d.some, {name: ("1", "2", "0") if name.endswith("gpu") else QUANTITIES for name in names}, 4
    )
    body: Json = {}
    if d.one_in(2):
        body["limits"] = {
            "cpu": d.pick(*QUANTITIES),
            "memory": d.pick("1Gi", "2500Mi", "5e9"),
        } | amounts()
    if d.one_in(3):
        body["requests"] = amounts()
    return body


def container(d: Drawer, name: str) -> Json:
    """Return a random Ray container."""
    probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": 3}
    body: Json = {
        "name": name,
        "image": d.pick(IMAGE, "rayproject/ray-ml:2.46.0-gpu", "ray"),
        "resources": resources(d),
    }
    if d.one_in(3):
        drawn = dict(d.unique(REFUSED_ENV if d.one_in(12) else ENV, 2))
        body["env"] = [{"name": key, "value": value} for key, value in drawn.items()]
        if d.one_in(3):
            body["env"].append(
                {
                    "name": "FROM",
                    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP", "apiVersion": "v1"}},
                }
            )
    body |= d.some(
        {
            "command": (["python"], ["/bin/bash", "-c", "--"], []),
            "args": (["serve.py"], ["echo $KUBERAY_GEN_RAY_START_CMD", "x"], []),
            "ports": (
                [{"containerPort": 6379, "name": "gcs-server", "protocol": "TCP"}],
                [{"containerPort": 7777, "name": "gcs-server", "protocol": "TCP"},
                    {"containerPort": 9999, "name": "dashboard", "protocol": "TCP"}],
                [{"containerPort": 8001, "name": "serve", "protocol": "TCP"},
                    {"containerPort": 10002, "name": "client", "protocol": "TCP"}],
                [{"containerPort": 9090, "name": "metrics", "protocol": "TCP"}],
                [{"containerPort": 1234, "protocol": "TCP"}],
                [{"containerPort": 9000, "name": "serve-grpc", "protocol": "TCP"}],
            ),
            "livenessProbe": (probe,),
            "readinessProbe": (probe,),
            "startupProbe": (probe,),
            "imagePullPolicy": ("Always", "IfNotPresent"),
            "securityContext": ({"privileged": False, "runAsUser": 1000},
                {"capabilities": {"drop": ["ALL"]}}),
            "lifecycle": ({"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}},),
            "envFrom": ([{"configMapRef": {"name": "settings"}}],),
            "volumeMounts": (
                [{"name": "logs", "mountPath": "/tmp/ray"}],
                [{"name": "shm", "mountPath": "/dev/shm"}],
                [{"name": "data", "mountPath": "/data", "readOnly": True}],
                [{"name": "ray-tls", "mountPath": "/x"}],
                [{"name": "token", "mountPath": "/var/run/secrets/ray.io/serviceaccount"}],
            ),
            "workingDir": ("/work",),
        },
        7,
    )  # fmt: skip
    return body


def template(d: Drawer, name: str) -> Json:
    """Return a random pod template."""
    containers = [container(d, name)]
    if d.one_in(8):
        containers.append(
            {
                "name": d.pick("sidecar", "collector", "autoscaler"),
                "image": "busybox",
                "resources": resources(d),
            }
        )
    spec: Json = {"containers": [] if d.one_in(40) else containers}
    spec |= d.some(
        {
            "volumes": (
                [{"name": "logs", "emptyDir": {}}],
                [{"name": "shm", "emptyDir": {"medium": "Memory"}},
                    {"name": "data", "configMap": {"name": "m"}}],
                [{"name": "ray-logs", "emptyDir": {"sizeLimit": "1000Mi"}},
                    {"name": "shared-mem", "emptyDir": {}}],
                [{"name": "gcs-storage", "emptyDir": {}}],
            ),
            "initContainers": ([{"name": "prepare", "image": "busybox", "command": ["true"]}],
                [{"name": "wait-gcs-ready", "image": "x"}]),
            "restartPolicy": ("Never", "OnFailure", "Always"),
            "serviceAccountName": ("mine",),
            "nodeSelector": ({"pool": "ray"},),
            "tolerations": ([{"key": "a", "operator": "Exists"}],),
            "affinity": ({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}],
            }}},),
            "schedulerName": ("mine",),
            "hostNetwork": (True,),
            "subdomain": ("sub",),
            "dnsPolicy": ("ClusterFirst",),
            "priorityClassName": ("high",),
            "terminationGracePeriodSeconds": (5,),
            "automountServiceAccountToken": (False, True),
            "shareProcessNamespace": (True,),
            "imagePullSecrets": ([{"name": "pull"}],),
            "securityContext": ({"fsGroup": 100},),
        },
        9,
    )  # fmt: skip
    body: Json = {"spec": spec}
    meta = d.some(
        {
            "labels": ({labels.APP_NAME: "my-model", labels.APP_CREATED_BY: "me"},
                {labels.IDENTIFIER: "mine"}, {"team": "a"}, {labels.CLUSTER: "other", "x": ""},
                {labels.GROUP: "mine", labels.SERVE: "false"}, {}),
            "annotations": ({"example.org/a": "b"}, {"ray.io/overwrite-container-cmd": "true"}, {}),
            "name": ("given",),
        },
        6,
    )  # fmt: skip
    return body | ({"metadata": meta} if meta else {})


START_PARAMS: Final = {
    "num-cpus": ("0", "4", "", "x"), "num-gpus": ("1", "0"), "memory": ("1000000000",),
    "resources": NASTY_RESOURCES, "dashboard-host": ("::", "127.0.0.1"),
    "port": ("6380", ""), "block": ("true", "false", ""), "object-store-memory": ("100000000",),
    "metrics-export-port": ("8081",), "dashboard-port": ("8266",),
    "node-ip-address": ("$MY_POD_IP",), "redis-password": ("pw", "$REDIS_PASSWORD"),
    "no-monitor": ("true", ""),
    "disable-usage-stats": ("",), "dashboard-agent-listen-port": ("52366",), "address": ("x:1",),
    "autoscaling-config": ("/x",), "log-color": ("auto",),
}  # fmt: skip
GROUP_FIELDS: Final[Json] = {
    "resources": ({"CPU": "4"}, {"GPU": "1", "memory": "2Gi"}, {"a<b&c>": "3", "CPU": "1"},
        {"TPU": "4", "custom": "7"}, {"x": "y"}, {"CPU": "500m"}, {}),
    "labels": ({"zone": "a"}, {"ray.io/x": "y", "b": ""}, {}),
}  # fmt: skip


def start_params(d: Drawer) -> Json:
    """Return random parameters of `ray start`, rarely invalid ones."""
    return d.some(START_PARAMS, 12) | d.some({"redis-username": ("u",), "labels": ("a=b",)}, 100)


def head(d: Drawer) -> Json:
    """Return a random head group."""
    body: Json = {"rayStartParams": start_params(d), "template": template(d, "ray-head")}
    body |= d.some(
        {
            **GROUP_FIELDS,
            "serviceType": ("ClusterIP", "NodePort", "LoadBalancer"),
            "enableIngress": (True, True, False),
            "headService": (
                {"metadata": {"name": "my-head", "labels": {"a": "b", labels.CLUSTER: "x"},
                    "annotations": {"c": "d"}}, "spec": {"type": "NodePort"}},
                {"metadata": {}, "spec": {"clusterIP": "None", "ports": [{"name": "extra",
                    "port": 1111, "protocol": "TCP"}]}},
                {"metadata": {"namespace": "elsewhere"}, "spec": {"selector": {"x": "y"},
                    "ports": [{"name": "dashboard", "port": 1, "protocol": "TCP"}]}},
                {"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP",
                    "publishNotReadyAddresses": False}},
            ),
        },
        8,
    )  # fmt: skip
    if body.get("enableIngress") and d.one_in(2):
        body["ingressOptions"] = d.some(
            {
                "host": ("ray.example.org", ""),
                "path": ("/ray(/|$)(.*)", "/x"),
                "pathType": ("Prefix", "Exact", "ImplementationSpecific"),
                "tls": ([{"hosts": ["ray.example.org"], "secretName": "tls"}],),
            },
            2,
        )
    return body


def worker_group(d: Drawer, name: str) -> Json:
    """Return a random worker group, with the fields that the API server would set."""
    least = d.pick(0, 0, 0, 1, 2)
    most = d.pick(2147483647, 3, 1, 0)
    body: Json = {
        "groupName": name,
        "replicas": d.pick(1, 0, 2, 3),
        "minReplicas": least,
        "maxReplicas": most,
        "numOfHosts": d.pick(1, 1, 1, 2, 3),
        "rayStartParams": start_params(d),
        "template": template(d, "ray-worker"),
    }
    body |= d.some(
        {
            **GROUP_FIELDS,
            "suspend": (True, False),
            "idleTimeoutSeconds": (60, 60, 0, -1),
            "priority": (1, 0, 0, -1),
            "scaleStrategy": ({"workersToDelete": [f"{name.lower()}-p0"]},
                {"workersToDelete": ["unknown", f"{name.lower()}-p1"]}, {}),
        },
        9,
    )  # fmt: skip
    return body


def network_policy(d: Drawer) -> Json:
    """Return a random network policy of a cluster."""
    peers: list[Json] = [
        {"podSelector": {"matchLabels": {"a": "b"}}},
        {"namespaceSelector": {}},
        {"ipBlock": {"cidr": "10.0.0.0/8"}},
    ]
    ports = [{"port": 8265, "protocol": "TCP"}, {"port": "serve"}]
    rules: Json = {
        "ingressRules": (
            [{"from": peers[:1], "ports": ports[:1]}],
            [{}],
            [{"from": peers, "ports": ports}],
        ),
        "egressRules": ([{"to": peers[2:]}], [{"ports": ports}]),
    }
    body: Json = {"mode": d.pick("DenyAll", "DenyAllIngress", "DenyAllEgress")}
    for field in ("head", "worker"):
        if d.one_in(3):
            body[field] = d.some(rules, 2)
    if d.one_in(3):
        body["workerGroups"] = [
            {"groupName": d.pick("g", "gpu-group", "gpu-group", "g", "absent"), **d.some(rules, 2)}
        ]
    return body


def fault_tolerance(d: Drawer, known: frozenset[str]) -> Json:
    """Return random fault tolerance options of the GCS."""
    credentials = ({"value": "pw"}, FROM_SECRET)
    redis: Json = {
        "redisAddress": ("redis:6379", "redis://r:1"),
        "redisPassword": credentials,
        "redisUsername": credentials,
        "externalStorageNamespace": ("mine",),
    }
    if FeatureGate.EMBEDDED_STORAGE.value not in known:
        return d.some(redis, 2)
    if not d.one_in(3):
        return d.some({**redis, "backend": ("redis",), "storage": ({"size": "1Gi"},)}, 2)
    storage: Json = {
        "claimName": ("mine",), "size": ("10Gi", "1024Mi"), "storageClassName": ("fast", ""),
        "accessModes": (["ReadWriteMany"],), "subPath": ("a/b",),
        "deletionPolicy": ("Retain", "DeleteWithCluster"),
    }  # fmt: skip
    return {
        "backend": "rocksdb",
        **d.some({"storage": lambda: d.some(storage, 3)}, 2),
        **d.some(redis, 15),
    }


def autoscaler_options(d: Drawer) -> Json:
    """Return random options of the autoscaler."""
    return d.some(
        {
            "version": ("v1", "v2"),
            "image": ("mine",),
            "imagePullPolicy": ("Always",),
            "idleTimeoutSeconds": (0, 30, -1),
            "upscalingMode": ("Default", "Aggressive", "Conservative"),
            "resources": ({"limits": {"cpu": "1"}}, {}),
            "env": ([{"name": "A", "value": "b"}], [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD",
                "value": "x"}], [{"name": "RAY_USE_TLS", "value": "1"}]),
            "envFrom": ([{"secretRef": {"name": "s"}}],),
            "volumeMounts": ([{"name": "logs", "mountPath": "/x"}],),
            "securityContext": ({"runAsUser": 1},),
            "command": (["python"],),
            "args": (["a", "$KUBERAY_GEN_AUTOSCALER_START_CMD"],),
        },
        4,
    )  # fmt: skip


def spec(d: Drawer, gates: dict[str, bool], known: frozenset[str]) -> Json:
    """Return a random spec of a RayCluster. It may be invalid."""
    names = d.unique(GROUPS, 3)
    body: Json = {
        "headGroupSpec": head(d),
        "rayVersion": d.pick(*VERSIONS),
        "workerGroupSpecs": [worker_group(d, name) for name in names],
    }
    body |= d.some(
        {
            "suspend": (True, False),
            "managedBy": ("ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"),
            "upgradeStrategy": ({"type": "Recreate"}, {"type": "None"}, {}),
            "headServiceAnnotations": ({"a": "b"}, {}),
            "authOptions": ({"mode": "token"}, {"mode": "disabled"},
                {"mode": "token", "secretName": "mine"}, {"mode": "token",
                    "enableK8sTokenAuth": True}, {"enableK8sTokenAuth": True}),
            "gcsFaultToleranceOptions": lambda: fault_tolerance(d, known),
        },
        6,
    )  # fmt: skip
    if d.one_in(3):
        body |= {"enableInTreeAutoscaling": d.pick(True, True, False)}
        if d.one_in(2):
            body["autoscalerOptions"] = autoscaler_options(d)
    for gate, field, make in (
        (FeatureGate.NETWORK_POLICY, "networkPolicy", network_policy),
        (FeatureGate.MTLS, "tlsOptions", tls_options),
        (FeatureGate.HISTORY_SERVER, "historyServerOptions", collector),
    ):
        if gate.value in known and d.one_in(3 if gates[gate.value] else 200):
            body[field] = make(d)
    return body


def tls_options(d: Drawer) -> Json:
    """Return random TLS options."""
    return d.pick({"enabled": True}, {}, {"enabled": False})


def collector(d: Drawer) -> Json:
    """Return random options of the history server's collector."""
    options: Json = {
        "image": ("collector:1", ""),
        "imagePullPolicy": ("Always",),
        "resources": ({"limits": {"cpu": "1"}},),
        "env": (
            [{"name": "A", "value": "b"}],
            [
                {"name": "RAY_COLLECTOR_PUSH_INTERVAL", "value": "1m"},
                {"name": "RAY_ROOT_DIR", "value": "x"},
            ],
        ),
    }
    return {} if d.one_in(12) else {"collectorOptions": d.some(options, 2)}


LABELS: Final = {
    "ray.io/gang-scheduling-enabled": ("true", "", "false"), "volcano.sh/queue-name": ("q", ""),
    "ray.io/priority-class-name": ("high",), "yunikorn.apache.org/app-id": ("app",),
    "yunikorn.apache.org/queue": ("root.q",), "kai.scheduler/queue": ("team",),
    "volcano.sh/network-topology-mode": ("hard", "soft"),
    "volcano.sh/network-topology-highest-tier-allowed": ("2", "x", "+1"),
    "ray.io/originated-from-crd": ("RayJob", "RayService", "RayCluster"),
    "ray.io/originated-from-cr-name": ("owner",), "team": ("a",),
}  # fmt: skip
ANNOTATIONS: Final = {
    "ray.io/ft-enabled": ("true", "false", "TRUE", "yes"),
    "ray.io/external-storage-namespace": ("mine",), "ray.io/enable-serve-service": ("true",
        "false"),
    "ray.io/disable-provisioned-head-restart": ("true",), "ray.io/overwrite-container-cmd": ("true",
        "false"), "ray.io/gcs-ft-deletion-timeout": ("1", "x", "-5"),
    "kubernetes.io/ingress.class": ("nginx",), "example.org/a": ("<&>",),
    "yunikorn.apache.org/task-groups": ("[]",),
}  # fmt: skip
PHASES: Final = ("Running", "Running", "Pending", "Failed", "Succeeded", "Unknown", "")


def pod_status(d: Drawer) -> Json:
    """Return a random status of a pod."""
    phase = d.pick(*PHASES)
    if not phase:
        return {}
    ready = d.pick("True", "True", "False", "Unknown")
    body: Json = {"phase": phase, "podIP": d.pick("10.1.0.1", "10.1.0.2", "")}
    body["conditions"] = [
        {
            "type": "Ready",
            "status": ready,
            "lastTransitionTime": "NOW-5s",
            **d.some(
                {"reason": ("ContainersNotReady",), "message": ("containers with unready status",)},
                2,
            ),
        }
    ]
    ended = {
        "exitCode": d.pick(0, 1, 137),
        "reason": d.pick("Error", "OOMKilled", "Completed", ""),
        "startedAt": "NOW-9s",
        "finishedAt": "NOW-3s",
    }
    state = d.pick(
        {"running": {}},
        {"running": {}},
        {"waiting": {"reason": "CrashLoopBackOff"}},
        {"terminated": ended},
    )
    container_ = {
        "name": d.pick("RAY", "RAY", "other"),
        "ready": ready == "True",
        "restartCount": d.pick(0, 3),
        "image": "",
        "imageID": "",
        "state": state,
    }
    return body | {"containerStatuses": [container_]}


def pods(d: Drawer, cluster: Body) -> list[Body]:
    """Return random pods of a RayCluster.

    Some are terminating, and there may be more or fewer than wanted.
    """
    name = cluster["metadata"]["name"]
    bodies = [
        _draw_pod(d, name, f"head-p{number}", "headgroup", "head", {})
        for number in range(d.pick(1, 1, 1, 0, 2))
    ]
    groups: Sequence[Json] = cluster["spec"]["workerGroupSpecs"]
    for group in groups:
        own, hosts, prefix = group["groupName"], group["numOfHosts"], group["groupName"].lower()
        number = 0
        for replica in range(d.pick(0, 1, 2, 3)):
            of_replica: dict[str, str] = {}
            if hosts > 1 or d.one_in(2):
                of_replica = {
                    "ray.io/worker-group-replica-index": d.pick(
                        f"{replica}", f"{replica}", f"{replica + 1}", "x"
                    )
                }
            for host in range(hosts if not d.one_in(5) else 1):
                more = {**of_replica}
                if hosts > 1:
                    more |= {
                        "ray.io/worker-group-replica-name": f"{prefix}-replica{replica}",
                        "ray.io/replica-host-index": f"{host}",
                    }
                bodies.append(_draw_pod(d, name, f"{prefix}-p{number}", own, "worker", more))
                number += 1
    if d.one_in(10):
        bodies.append(_draw_pod(d, name, "stray-p0", "removed-group", "worker", {}))
    return bodies


def _draw_pod(
    d: Drawer, cluster: str, name: str, group: str, node_type: str, more: dict[str, str]
) -> Body:
    meta: Json = {"creationTimestamp": d.pick("NOW-30s", "NOW-20s", "NOW-300s")}
    status = pod_status(d)
    if d.one_in(12) and not _has_ended(status):  # KubeRay waits for an ended pod to vanish
        meta |= {
            "deletionTimestamp": d.pick("NOW-2s", "NOW-2s", "NOW-100s"),
            "deletionGracePeriodSeconds": 30,
            "finalizers": [KEEP],
        }
    if node_type == "head" and d.one_in(4):
        meta["annotations"] = {
            "ray.io/upgrade-strategy-recreate-hash": d.pick("stale", ""),
            "ray.io/kuberay-version": d.pick("nightly", "v1.0.0", ""),
        }
    names = {"RAY": "ray-head" if node_type == "head" else "ray-worker"}
    for container in status.get("containerStatuses", []):
        container["name"] = names.get(container["name"], container["name"])
    containers: list[Json] = [{"name": names["RAY"], "image": IMAGE, "resources": {}}]
    pod_spec: Json = {
        "restartPolicy": d.pick("Always", "Always", "Never", "OnFailure"),
        "containers": containers,
    }
    return a_pod(
        cluster,
        name,
        group=group,
        node_type=node_type,
        more_labels=more,
        metadata=meta,
        spec=pod_spec,
        status=status,
    )


def _has_ended(status: Json) -> bool:
    states = [container["state"] for container in status.get("containerStatuses", [])]
    return status.get("phase") in {"Failed", "Succeeded"} or any(
        "terminated" in state for state in states
    )


def redrawn(d: Drawer, cluster: Body, gates: dict[str, bool], known: frozenset[str]) -> Json:
    """Return an edit of one random field of the RayCluster's spec.

    The field is removed, or gets the value that it has in another random spec.
    """
    path: list[Any] = ["spec"]
    have, other = cluster["spec"], spec(d, gates, known)
    while True:
        path.append(d.pick(*sorted({*have, *other} - UNEDITED_FIELDS)))
        one, two = have.get(path[-1]), other.get(path[-1])
        if path[-1] in FIRST_ENTRY_LISTS and one and two and not d.one_in(4):
            path.append(0)
            one, two = one[0], two[0]
        elif d.one_in(3) and path[-1] != "gcsFaultToleranceOptions":
            break
        if (
            not isinstance(one, dict)
            or not isinstance(two, dict)
            or not {*one, *two} - UNEDITED_FIELDS
        ):
            break
        have, other = cast("Json", one), cast("Json", two)
    return {"do": "edit", "path": path, "value": two}


def blank(d: Drawer, value: Json) -> None:
    """Set one random field of a spec to an empty value, in place, as a manifest template might."""
    leaves: list[tuple[Any, Any]] = []
    left: list[Any] = [value]
    for parent in left:  # the loop appends to `left`
        items: list[tuple[Any, Any]] = [
            *(cast("Json", parent).items() if isinstance(parent, dict) else enumerate(parent))
        ]
        for key, field in items:
            if key not in NEVER_EMPTY_FIELDS and isinstance(field, str | list | dict):
                left += [field] if isinstance(field, list | dict) else []
                leaves += (
                    [(parent, key)]
                    if isinstance(key, str) and key not in NEVER_EMPTY_OBJECTS
                    else []
                )
    if leaves:
        at, key = d.pick(*leaves)
        at[key] = type(at[key])()


def step(d: Drawer, cluster: Body, gates: dict[str, bool], known: frozenset[str]) -> Json:
    """Return a random step of a round: an edit, a change of pods, or a change of other objects."""
    if d.one_in(6):
        return redrawn(d, cluster, gates, known)
    groups = [group["groupName"] for group in cluster["spec"]["workerGroupSpecs"]]
    group = d.pick("*", "headgroup", *groups)
    path: list[Any] = ["spec", "workerGroupSpecs", 0]
    edits: tuple[tuple[list[Any], Any], ...] = (
        ([*path, "replicas"], d.pick(0, 1, 2, 4)), ([*path, "suspend"], True),
        ([*path, "template", "spec", "containers", 0, "image"], "ray:new"), ([*path], None),
        (["spec", "suspend"], d.pick(True, False)), (["spec", "rayVersion"], "2.60.0"),
        (["spec", "headGroupSpec", "rayStartParams", "num-cpus"], "7"),
        (["spec", "networkPolicy"], None), (["spec", "networkPolicy"], {"mode": "DenyAllIngress"}),
        (["spec", "upgradeStrategy"], {"type": "Recreate"}),
        (["spec", "gcsFaultToleranceOptions"], {"backend": "rocksdb", "storage": {"size": "5Gi"}}),
        (["spec", "gcsFaultToleranceOptions"], None),
        (["spec", "enableInTreeAutoscaling"], d.pick(True, False)),
        (["metadata", "annotations", "ray.io/enable-serve-service"], "true"),
        ([*path, "scaleStrategy"], {"workersToDelete": [f"{name.lower()}-p0" for name in groups]}),
        ([*path, "numOfHosts"], 2),
    )  # fmt: skip
    kinds = (
        "Service",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Ingress",
        "NetworkPolicy",
        "PodGroup",
        "Secret",
        "PersistentVolumeClaim",
        "Issuer",
    )
    edits = tuple(edit for edit in edits if known >= _needs(edit))
    (path, value), kind = (
        d.pick(*edits),
        d.pick(
            "run",
            "run",
            "set",
            "remove",
            "edit",
            "edit",
            "certify",
            "lose",
            "touch",
            "touch",
            "delete",
            "finish jobs",
        ),
    )
    fields: dict[str, Json] = {
        "set": {"group": group, "status": pod_status(d), "most": d.pick(1, 100)},
        "remove": {"group": group, "most": d.pick(1, 100)},
        "edit": {"path": path, "value": value},
        "lose": {"kind": d.pick(*kinds)},
        "touch": {
            "kind": d.pick(*kinds, "Pod", "Job", "Certificate"),
            "how": d.pick("orphan", "steal", "strip", "label", "note", "content"),
        },
        "delete": {"at": d.pick("NOW-1s", "NOW-100s", "NOW-1000s")},
        "finish jobs": {"how": d.pick("Complete", "Failed")},
    }
    return {"do": kind, **fields.get(kind, {"group": "*"})}


def _needs(edit: tuple[list[Any], Any]) -> set[str]:
    """Return the feature gates that must be enabled for KubeRay to know the edited field."""
    if edit[0][-1] == "networkPolicy":
        return {FeatureGate.NETWORK_POLICY.value}
    return (
        {FeatureGate.EMBEDDED_STORAGE.value}
        if isinstance(edit[1], dict) and "backend" in edit[1]
        else set()
    )


def service(d: Drawer, gates: dict[str, bool], known: frozenset[str]) -> Body:
    """Return a random RayService."""
    body: Json = {
        "rayClusterConfig": spec(d, gates, known),
        "serveConfigV2": d.pick("applications: []", "", "a: <b>"),
    }
    body |= d.some(
        {
            "serviceUnhealthySecondThreshold": (1,),
            "excludeHeadPodFromServeSvc": (True, False),
            "rayClusterDeletionDelaySeconds": (0, 5, -1),
            "upgradeStrategy": ({"type": "None"}, {"type": "NewCluster"}, {"type": "Sometimes"},
                {}),
            "serveService": (
                {"metadata": {"name": "mine", "labels": {"a": "b"}, "annotations": {"c": "d"}}},
                {"spec": {"type": "NodePort", "ports": [{"name": "serve", "port": 9999,
                    "protocol": "TCP"}]}},
                {"metadata": {}, "spec": {"selector": {"x": "y"}, "ports": [{"name": "other",
                    "port": 1, "protocol": "TCP"}]}},
            ),
        },
        4,
    )  # fmt: skip
    meta = {
        "name": d.pick("s", "my-service", "n" * 41, "n" * 42, "1s", "s.t"),
        "namespace": "ns",
        "uid": "u",
        "generation": 1,
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": meta, "spec": body}


ENTRYPOINTS: Final = (
    "python main.py",
    "  python main.py --lr=1e-3  ",
    """echo no quote 'single quote' "double quote" """,
    "python -c 'import ray; ray.init()'",
    "python main.py \\\n  --epochs 3",
    "",
)
"""Entrypoints that a shell only splits into arguments. They need no other feature of a shell."""
SHELL_SCRIPTS: Final = ("echo a && echo b", "python main.py --pattern *.csv", "cd x\npython y.py",
    "echo $HOME")  # fmt: skip
RUNTIME_ENVS: Final = (
    "test: test",
    'pip: [torch]\nenv_vars: {A: \'1\', B: "a\\nb <c> & \\"d\\""}',
    "# nothing",
    "invalid_yaml_string",
    "a: [1, 2.5, true, null]",
    "env_vars: {A: '$HOME'}",
)


def job(d: Drawer, gates: dict[str, bool], known: frozenset[str]) -> tuple[Body, list[Body]]:
    """Return a random RayJob about to start, and a list with the RayCluster it selects, if any."""
    drawn = spec(d, gates, known)
    mode = d.pick("K8sJobMode", "K8sJobMode", "SidecarMode", "HTTPMode", "InteractiveMode")
    found: Json = {
        "entrypoint": d.pick(*(SHELL_SCRIPTS if d.one_in(8) else ENTRYPOINTS)),
        "submissionMode": mode,
        "rayClusterSpec": drawn,
    }
    found |= d.some(
        {
            "runtimeEnvYAML": RUNTIME_ENVS,
            "metadata": ({"a": "b"}, {"b": "<1>", "a": "x & y"}, {}),
            "entrypointNumCpus": (1, 0.5, 2.25),
            "entrypointNumGpus": (1, 0.1, 0),
            "entrypointResources": ('{"R1": 2}', '{"a b": 0.5}', "{"),
            "jobId": ("mine", "a.b-c_d"),
            "submitterConfig": ({}, {"backoffLimit": 0}, {"backoffLimit": 3}),
            "submitterPodTemplate": (partial(_draw_submitter_template, d),),
        },
        3,
    )  # fmt: skip
    if callable(template := found.get("submitterPodTemplate")):
        found["submitterPodTemplate"] = template()
    found |= d.some(
        {
            "backoffLimit": (0, 1, 2, -1),
            "activeDeadlineSeconds": (1000, 0, -1),
            "preRunningDeadlineSeconds": (1000, 1000, 0),
            "ttlSecondsAfterFinished": (0, 10, -1),
            "shutdownAfterJobFinishes": (True, False),
            "deletionStrategy": DELETION_STRATEGIES,
        },
        8,
    )
    selected = list[Body]()
    if d.one_in(8):
        found["clusterSelector"] = d.pick(
            {"ray.io/cluster": "chosen"}, {"ray.io/cluster": ""}, {"a": "b"}
        )
        selected = [a_cluster(drawn, name="chosen")]
        if d.one_in(2):
            del found["rayClusterSpec"]
    name = d.pick("j", "my-job", "n" * 47, "n" * 48, "1j", "j.k")
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": "u",
        "generation": 1,
        "labels": d.some(QUEUE_LABELS | {"team": ("a",)}, 4),
        "annotations": d.some({"a": ("b",), "yunikorn.apache.org/task-groups": ("[]",)}, 5),
        "finalizers": ["ray.io/rayjob-finalizer"],
    }
    cluster = "chosen" if selected else f"{name[:47]}-abcde"
    status = {
        "jobDeploymentStatus": "Initializing",
        "jobId": found.get("jobId") or f"{name}-fghjk",
        "rayClusterName": cluster,
        "dashboardURL": f"{cluster}-head-svc.ns.svc.cluster.local:8265",
        "startTime": "NOW-1s",
    }
    body = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta}
    return {**body, "spec": found, "status": status}, selected


QUEUE_LABELS: Final[Json] = {
    "ray.io/gang-scheduling-enabled": ("true", ""),
    "volcano.sh/queue-name": ("q",),
    "ray.io/priority-class-name": ("high",),
    "volcano.sh/network-topology-mode": ("hard",),
    "volcano.sh/network-topology-highest-tier-allowed": ("2", "two"),
    "yunikorn.apache.org/app-id": ("app",),
    "yunikorn.apache.org/queue": ("root.q",),
    "kai.scheduler/queue": ("k",),
}
DELETION_STRATEGIES: Final = (
    {"onSuccess": {"policy": "DeleteCluster"}, "onFailure": {"policy": "DeleteNone"}},
    {"deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "SUCCEEDED"}}]},
    {
        "deletionRules": [
            {"policy": "DeleteWorkers", "condition": {"jobStatus": "FAILED", "ttlSeconds": 5}},
            {"policy": "DeleteCluster", "condition": {"jobStatus": "FAILED", "ttlSeconds": 1}},
        ]
    },
)


SCHEDULES: Final = (
    "*/5 * * * *", "30 2 * * *", "0 0 29 2 *", "0 9-17/2 * * mon-fri", "15,45 1-3 1,15 * *",
    "0 0 * jan-mar sun", "@daily", "@every 90s", "@every 1h30m", "@weekly", "59 23 31 12 ?",
    "0 0 13 * fri", "*/20 */7 */10 */3 *", "0 2 8-14 mar *", "5-59/9 3 * * 0-6",
)  # fmt: skip
BAD_SCHEDULES: Final = (
    "* * * *", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "a * * * *",
    "TZ=UTC * * * * *", "@sometimes", "@every x", "", "* * * * 7", "1-2-3 * * * *", "*/-1 * * * *",
    "@every 0s", "* * * foo *", "1/2/3 * * * *", "999999999999999999999 * * * *",
)  # fmt: skip
ZONES: Final = (
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "America/Santiago",
    "Africa/Casablanca", "Pacific/Apia", "Europe/Dublin",
)  # fmt: skip
"""Time zones of random schedules.

Australia/Lord_Howe is left out: its clocks change by half an hour, and KubeRay skips a day there.
All runs are after 2011, when Pacific/Apia had no 30 December: KubeRay would search for runs on that
day forever.
"""
LAST_RUNS: Final = (
    "2025-03-09T06:30:00Z", "2025-03-30T00:59:59Z", "2024-10-27T00:15:00Z", "2024-11-03T05:45:00Z",
    "2023-03-25T22:10:00Z", "2024-02-28T23:59:00Z", "2025-04-05T14:10:00Z", "2025-12-31T23:59:30Z",
)  # fmt: skip


def cron_job(d: Drawer, gates: dict[str, bool], known: frozenset[str]) -> Body:
    """Return a random RayCronJob whose last run was long ago."""
    template, _ = job(d, gates, known)
    found: Json = {
        "schedule": d.pick(*(BAD_SCHEDULES if d.one_in(6) else SCHEDULES)),
        "jobTemplate": template["spec"],
    }
    if d.one_in(2):
        found["timeZone"] = d.pick("No/Where", "Local", "../x") if d.one_in(8) else d.pick(*ZONES)
    meta = {
        "name": d.pick(*("n" * 37, "1c") if d.one_in(12) else ("c", "nightly-train", "n" * 36)),
        "namespace": "ns",
        "uid": "u",
        "generation": 1,
    }
    body = {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": meta}
    return {**body, "spec": found, "status": {"lastScheduleTime": d.pick(*LAST_RUNS)}}


def _draw_submitter_template(d: Drawer) -> Json:
    container: Json = {"name": "submit", "image": IMAGE}
    container |= d.some(
        {
            "command": (["/submitter"], []),
            "args": (["--x"],),
            "env": ([{"name": "RAY_AUTH_MODE", "value": "mine"}],),
            "resources": ({"limits": {"cpu": "1", "memory": "1Gi"}},),
        },
        2,
    )
    template: Json = {
        "spec": {"containers": [container], **d.some({"restartPolicy": ("Never", "OnFailure")}, 2)}
    }
    placing = {
        "nodeSelector": ({"disk": "ssd"},),
        "tolerations": ([{"key": "gpu", "operator": "Exists"}],),
    }
    template["spec"] |= d.some(placing, 3)
    metadata = {"labels": ({"a": "b"},), "annotations": ({"c": "d"},)}
    template["metadata"] = d.some(metadata, 3)
    return template


def _draw_cluster(d: Drawer, operator: OperatorSettings, known: frozenset[str]) -> Body:
    meta: Json = {"labels": d.some(LABELS, 6), "annotations": d.some(ANNOTATIONS, 9)}
    drawn = spec(d, operator.gates, known)
    if d.one_in(4):
        blank(d, drawn)
    return a_cluster(drawn, name=d.pick(*INVALID_NAMES if d.one_in(40) else NAMES), **meta)


def _is_refused(cluster: Body, operator: OperatorSettings) -> bool:
    return (
        refusals.find_violation_plan(
            ray_cluster.decode(dated(cluster, SystemClock().now())), operator.config("")
        )
        is not None
    )


def _is_refused_job(drawn: Body, operator: OperatorSettings) -> bool:
    decoded = ray_job.decode(dated(drawn, SystemClock().now()))
    gates, is_named = operator.config("").gates, drawn["kind"] == "RayJob"
    problem = job_rules.metadata(decoded.metadata) if is_named else None
    return (problem or job_rules.spec(decoded, gates)) is not None


def _draw_other_kind(
    d: Drawer, number: int, operator: OperatorSettings, known: frozenset[str]
) -> Case | None:
    """Draw a RayService, RayJob or RayCronJob if `number` ends in 9, 8 or 7; else return None.

    A RayCronJob is drawn only for KubeRay 1.7 and newer.
    """
    if number % 10 == 9:
        return Case(settings=operator, service=service(d, operator.gates, known))
    if number % 10 == 8:
        drawn, selected = job(d, operator.gates, known)
        if not d.one_in(INVALID_ONE_IN):
            while _is_refused_job(drawn, operator):
                drawn, selected = job(d, operator.gates, known)
        return Case(settings=operator, job=drawn, objects=selected)
    if number % 10 == 7 and FeatureGate.NETWORK_POLICY.value in known:  # KubeRay 1.7 and newer
        cron = cron_job(d, operator.gates, known)
        if not d.one_in(INVALID_ONE_IN):
            while _is_refused_job({**cron, "spec": cron["spec"]["jobTemplate"]}, operator):
                cron = cron_job(d, operator.gates, known)
        return Case(settings=operator, cron_job=cron)
    return None


def case(seed: int, number: int, known: frozenset[str]) -> Case:
    """Draw a case: a RayCluster with pods and later steps, a RayService, a RayJob or a RayCronJob.

    `number` is the number of the case within the seed.
    """
    d = Drawer(Random(f"{seed} {number}"))
    operator = settings(d, known)
    if (other := _draw_other_kind(d, number, operator, known)) is not None:
        return other
    cluster = _draw_cluster(d, operator, known)
    if not d.one_in(INVALID_ONE_IN):
        while _is_refused(cluster, operator):
            cluster = _draw_cluster(d, operator, known)
    if d.one_in(20):
        cluster["metadata"] |= {
            "finalizers": ["ray.io/gcs-ft-redis-cleanup-finalizer"],
            "deletionTimestamp": "NOW-5s",
        }
    drawn_pods = pods(d, cluster) if d.one_in(2) else []
    if (
        drawn_pods
    ):  # KubeRay may count a cluster as provisioned without its head, and then never makes one
        cluster["metadata"]["annotations"].pop(labels.DISABLE_PROVISIONED_HEAD_RESTART, None)
    rounds = d.several(
        lambda _: [step(d, cluster, operator.gates, known) for _ in range(d.pick(1, 2))], 3
    )
    objects = [cluster, *drawn_pods]
    return Case(settings=operator, objects=objects, rounds=rounds, one_host=d.pick(1, 1, 0, None))
