"""The page docs/reference/configuration.md: variables, feature gates and the configuration file.

Variables, defaults and fields come from the code. A variable is found by the line of code that
reads it. Its default is the value in the settings of an empty environment.
"""

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from cluster_reconciler import config as cluster_config
from cluster_reconciler import settings as cluster_settings
from common import feature_gates, settings
from common.feature_gates import BETA, FeatureGate
from common.ray import operator_file
from common.settings import OPERATOR_FILE, Settings
from generators.docs import annotations, markdown
from job_reconciler import settings as job_settings
from notifications import settings as notification_settings
from service_reconciler import settings as service_settings

_READ: Final = re.compile(r'^\s+(\w+)(?:=|: Annotated)[^#="]*?"([A-Z][A-Z0-9_]{5,})"', re.MULTILINE)
TEXTS: Final = {
    "RAYBUS_NATS_URL": "URL of NATS. Several servers of one NATS cluster are separated by commas.",
    (
        "RAYBUS_NATS_SEED_FILE"
    ): "File with the service's key. Without it, the server must have no users.",
    ("RAYBUS_NATS_CA_FILE"): (
        "CA of the server's certificate. Without it, TLS is used only if the URL starts with "
        "`tls://`."
    ),
    ("RAYBUS_NATS_REGISTER_KEY"): (
        "Create a key at the start and register it in the ConfigMap `nats-keys-SERVICE`, instead "
        "of reading the two files ([NATS](../nats.md#keys-and-certificates))."
    ),
    "RAYBUS_KUBECONFIG": "Kubeconfig file. Without it, the pod's ServiceAccount is used.",
    "RAYBUS_HTTP_PORT": "Port of `/metrics`, `/healthz` and `/readyz`.",
    "RAYBUS_HTTP_PORT_FILE": (
        "File to write the port to. With it, a port in use is replaced by the next free one."
    ),
    "RAYBUS_NAMESPACE": "Namespace of raybus's Leases.",
    (
        "RAYBUS_LEASE_NAMESPACE"
    ): "Namespace of the Lease that KubeRay and the watcher share; `RAYBUS_NAMESPACE` when absent.",
    "RAYBUS_IDENTITY": "Name of this replica; the host name when absent.",
    (
        "RAYBUS_WATCH_NAMESPACES"
    ): "Watched namespaces, separated by commas; all namespaces when absent.",
    "RAYBUS_LOG_LEVEL": f"One of {', '.join(f'`{level}`' for level in settings.LEVELS)}.",
    "RAYBUS_FEATURE_GATES": "`Name=true,Other=false`; see below.",
    "RAYBUS_WORKERS": (
        "Number of concurrent reconciles. The same number is added for namespaces without a "
        "running reconcile, and again for RayClusters that have all their pods."
    ),
    "RAYBUS_CLUSTER_DOMAIN": "Domain of the Kubernetes cluster.",
    ("RAYBUS_USE_KUBERNETES_PROXY"): (
        "Reach Ray dashboards through the API server, for a service outside the cluster. In the "
        "cluster, this needs the rights of `deploy/components/kubernetes-proxy`."
    ),
    ("RAYBUS_GATE_TARGETS"): (
        "Servers that the gates of an UpgradePolicy may ask, separated by commas; none by "
        "default. An entry is `https://HOST`, `https://*.DOMAIN`, `http://HOST:PORT` or a network "
        "of addresses such as `http://10.0.0.0/8:9090`; `{namespace}` in a host is the namespace "
        "of the RayService ([webhooks](../how-to/canary.md#ask-a-webhook), "
        "[Prometheus](../how-to/canary.md#ask-prometheus))."
    ),
    "KUBERNETES_SERVICE_HOST": "Address of the API server, set by Kubernetes. No gate may ask it.",
    "RAYBUS_TRACES": (
        "File to which spans are appended; OpenTelemetry's `OTEL_*` variables work too."
    ),
    "RAYBUS_OPERATOR_CONFIG": "The operator's file; see below.",
    ("RAYBUS_BATCH_SCHEDULER"): (
        "`volcano`, `yunikorn`, `scheduler-plugins` or `kai-scheduler`, if the operator's file "
        "names none."
    ),
    (
        "RAYBUS_GRACEFUL_DRAIN"
    ): "Default of the annotation `raybus.io/graceful-drain`. It changes pods.",
    ("RAYBUS_DISRUPTION_BUDGETS"): (
        "Default of the annotation `raybus.io/disruption-budget`: PodDisruptionBudgets for all "
        "clusters."
    ),
    ("RAYBUS_WRITE_ZERO_VALUES"): (
        "Write Go's zero values together with the finalizer, which creates a second generation of "
        "the object."
    ),
    "ENABLE_INIT_CONTAINER_INJECTION": "Workers wait for the GCS in an init container.",
    "ENABLE_PROBES_INJECTION": "Ray containers without probes get probes.",
    "ENABLE_GCS_FT_REDIS_CLEANUP": "Clean up Redis at the deletion of a fault-tolerant cluster.",
    "ENABLE_RANDOM_POD_DELETE": "Delete surplus workers at random, even with the autoscaler.",
    "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": "The head's Service has a cluster IP.",
    "ENABLE_LOGIN_SHELL": "Ray and submitters start in a login shell.",
    "ENABLE_DETERMINISTIC_HEAD_POD_NAME": "The head pod has the name of its cluster.",
    "USE_INGRESS_ON_OPENSHIFT": "Create an Ingress on OpenShift too.",
    "CLUSTER_DOMAIN": (
        "KubeRay's name of `RAYBUS_CLUSTER_DOMAIN`. If both are set, they must be equal."
    ),
    "RAYBUS_MAX_PODS_PER_CLUSTER": "Limit of worker pods per RayCluster ([limits](limits.md)).",
    "RAYBUS_MAX_GROUPS_PER_CLUSTER": "Limit of worker groups per RayCluster ([limits](limits.md)).",
    (
        "RAYBUS_MAX_HOSTS_PER_REPLICA"
    ): "Limit of hosts per replica of a worker group ([limits](limits.md)).",
    (
        "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV"
    ): "Seconds between reconciles of an unchanged cluster; 0 disables them.",
    (
        "RAYBUS_NOTIFICATIONS_FILE"
    ): "Destinations, filters and templates ([notifications](../how-to/notifications.md)).",
    ("RAYBUS_NOTIFICATIONS_SECRETS"): (
        "Folder with a file `NAME.url` for each destination, and `NAME.key` if its requests are "
        "signed."
    ),
    (
        "RAYBUS_NATS_CREDENTIALS"
    ): "Folder with `ca.crt` and `users/subscriber-NAME.seed`, for use outside Kubernetes.",
    ("RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS"): (
        "Seconds after the end of the Ray job in which its submitter must end."
    ),
    ("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS"): (
        "Seconds without an answer of the dashboard after which the attempt fails."
    ),
    (
        "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES"
    ): "`shutdownAfterJobFinishes` deletes the RayJob, and not only its RayCluster.",
    "TZ": "Time zone of RayCronJobs without `timeZone`; UTC when absent.",
    "ENABLE_ZERO_DOWNTIME": "Default of the upgrade strategy: `NewCluster` if true, else `None`.",
}
"""The meaning of each environment variable, as the page prints it."""
_GATES: Final = {
    FeatureGate.STATUS_CONDITIONS: "Conditions of RayClusters.",
    FeatureGate.DELETION_POLICY: (
        "Permits `deletionStrategy`. Groups of a cluster without autoscaling can be suspended."
    ),
    FeatureGate.MULTI_HOST_INDEXING: (
        "raybus numbers the pods of a multi-host group, and creates and deletes them together."
    ),
    FeatureGate.INCREMENTAL_UPGRADE: (
        "Upgrades in steps; if off, they are blue/green, with the Event "
        "`IncrementalUpgradeDisabled`."
    ),
    FeatureGate.CRON_JOB: "RayCronJobs start RayJobs; if off, they do nothing.",
    FeatureGate.SIDECAR_SUBMITTER_RESTART: (
        "A submitter in the head pod restarts up to two times. Requires Kubernetes 1.35."
    ),
    FeatureGate.NETWORK_POLICY: (
        "Permits `networkPolicy`: one NetworkPolicy for the head, and one for each worker group."
    ),
    FeatureGate.EMBEDDED_STORAGE: "Permits a GCS store on a volume: `backend: rocksdb`.",
    FeatureGate.MTLS: (
        "Permits `tlsOptions`: mutual TLS between Ray's processes, with certificates of "
        "cert-manager. Needs the rights of `deploy/components/mtls`."
    ),
    FeatureGate.HISTORY_SERVER: (
        "Permits `historyServerOptions`: a container that collects logs and events for the "
        "history server."
    ),
    FeatureGate.KUBERNETES_WAS: (
        "Kubernetes' own scheduler schedules gangs (`scheduling.k8s.io/v1alpha2`)."
    ),
}
_FILE: Final = {
    "headSidecarContainers": "Containers added to every head pod.",
    "workerSidecarContainers": "Containers added to every worker pod.",
    "defaultContainerEnvs": "Variables added to every Ray container that does not set them.",
    "defaultPodAnnotations": "Annotations of every Ray pod that does not set them.",
    "defaultPodLabels": "Labels of every Ray pod that does not set them.",
    "batchScheduler": "Name of the batch scheduler.",
    "enableBatchScheduler": "KubeRay's old switch for Volcano.",
    "deleteRayJobAfterJobFinishes": "Whether `shutdownAfterJobFinishes` deletes the RayJob, as "
    "`DELETE_RAYJOB_CR_AFTER_JOB_FINISHES` does. KubeRay ignores this field.",
}
_HEAD: Final = f"""\
# Configuration

Environment variables configure the services. The deployment sets them in the ConfigMap
`raybus-config`. An invalid value ends the process with one line that names the variable, the value
and the valid values. {markdown.WRITTEN}
"""


def page() -> str:
    """Return the text of the configuration page."""
    lines = [_HEAD]
    for title, module, held in _parts():
        rows = [_row(name, held.get(name, "")) for name in _variables(module)]
        lines += [f"## {title}", "", *markdown.table(("variable", "default", "meaning"), rows), ""]
    gates = [
        (f"`{gate}`", "beta, on" if gate in BETA else "alpha, off", _heeded(gate), _GATES[gate])
        for gate in sorted(FeatureGate)
    ]
    lines += [
        "## Feature gates",
        "",
        f"Names are KubeRay's; `{feature_gates.ALL_ALPHA}` and `{feature_gates.ALL_BETA}` set all "
        "gates of a stage.",
        "",
    ]
    lines += [*markdown.table(("gate", "stage", "used", "effect"), gates), ""]
    lines += [
        "## The operator's file",
        "",
        f"`{OPERATOR_FILE}` names a file, as KubeRay's `--config` does. job-reconciler reads only",
        "the batch scheduler and `deleteRayJobAfterJobFinishes`.",
        "",
    ]
    lines += ["```yaml", "apiVersion: config.ray.io/v1alpha1", "kind: Configuration", "```", ""]
    lines += [
        *markdown.table(
            ("field", "meaning"), [(f"`{name}`", text) for name, text in _FILE.items()]
        ),
        "",
    ]
    lines += [
        "raybus accepts fields of KubeRay's own process without effect; the service logs them at "
        "its start.",
        "",
    ]
    rows = [(f"`{field}`", markdown.code(instead)) for field, instead in _without_effect()]
    lines += [*markdown.table(("field", "replacement"), rows), ""]
    return "\n".join(lines)


def variables() -> list[str]:
    """Return every environment variable on the configuration page."""
    return [name for _, module, _ in _parts() for name in _variables(module)]


def fields() -> set[str]:
    """Return every field of the operator's configuration file that the page lists."""
    return {*_FILE, *(field for field, _ in _without_effect()), "apiVersion", "kind"}


def named() -> set[str]:
    """Return every environment variable that the source code of the services mentions."""
    text = "\n".join(path.read_text() for path in annotations.sources())
    return set(re.findall(r'"((?:RAYBUS|ENABLE|RAYCLUSTER|USE|CLUSTER)_[A-Z_]+[A-Z])"', text))


def _parts() -> list[tuple[str, ModuleType, dict[str, object]]]:
    shared = _defaults(settings, Settings.from_environment("watcher", {}))
    config = _defaults(cluster_config, cluster_config.Config.from_environment({}))
    gates = Settings.from_environment("service-reconciler", {}).feature_gates
    service = _defaults(service_settings, service_settings.config_of(gates, {}))
    return [
        ("Every service", settings, shared),
        ("cluster-reconciler and job-reconciler", operator_file, {}),
        ("cluster-reconciler, KubeRay's switches", cluster_config, config),
        ("service-reconciler", service_settings, service),
        ("job-reconciler", job_settings, _job_defaults()),
        (
            "notifications",
            notification_settings,
            _defaults(notification_settings, notification_settings.Paths()),
        ),
    ]


def _variables(module: ModuleType) -> list[str]:
    if module is operator_file:
        return [OPERATOR_FILE, operator_file.BATCH_SCHEDULER]
    names = [name for _, name in _READ.findall(inspect.getsource(module))]
    return [*names, "TZ"] if module is job_settings else names


def _job_defaults() -> dict[str, object]:
    config = job_settings.read_config(BETA, {}, cluster_domain="")
    limits = msgspec.structs.asdict(config.limits)
    seconds = {name: int(limit.total_seconds()) for name, limit in limits.items()}
    values: dict[str, object] = {**msgspec.structs.asdict(config), **seconds}
    names = _READ.findall(inspect.getsource(job_settings))
    return {name: values[field] for field, name in names}


def _defaults(module: ModuleType, held: msgspec.Struct) -> dict[str, object]:
    values: dict[str, Any] = msgspec.structs.asdict(held)
    return {name: values[field] for field, name in _READ.findall(inspect.getsource(module))}


def _row(name: str, default: object) -> tuple[str, str, str]:
    match default:
        case bool():
            written = str(default).lower()
        case None | "" | () | frozenset():
            written = ""
        case _:
            written = str(default)
    return f"`{name}`", markdown.code(written), TEXTS[name]


def _heeded(gate: FeatureGate) -> str:
    own = Path(feature_gates.__file__)
    named = (
        path
        for path in annotations.sources()
        if path != own and f"Gate.{gate.name}" in path.read_text()
    )
    return "yes" if next(named, None) is not None else "no"


def _without_effect() -> list[tuple[str, str]]:
    """Return the configuration file's fields that have no effect, each with its replacement."""
    kinds = {
        field.encode_name: field.default
        for field in msgspec.structs.fields(cluster_settings.OperatorFile)
    }
    rows: list[tuple[str, str]] = []
    for name in (name for name, default in kinds.items() if default is None):
        file = _with(name)
        (reported,) = cluster_settings.find_ineffective_fields(file)
        rows.append((name, reported.removeprefix(name).strip(" ()").removeprefix("set ")))
    return rows


def _with(name: str) -> cluster_settings.OperatorFile:
    for value in ("1", "true", "x"):
        text = f"apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n{name}: {value}\n"
        try:
            return cluster_settings.parse(text, path=name)
        except Exception:  # noqa: BLE001, S112 - try a value of another type
            continue
    raise AssertionError(name)
