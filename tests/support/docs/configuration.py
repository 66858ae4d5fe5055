"""docs/reference/configuration.md: every variable that a service reads, the feature gates, and the operator's file.

Variables, defaults and fields are taken from the code: a variable from the line that reads it, its default from an empty environment.
"""

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from cluster_reconciler import config as cluster_config
from cluster_reconciler import operator_file
from cluster_reconciler import settings as cluster_settings
from common import feature_gates
from common.feature_gates import BETA, Gate
from common.runtime import settings
from common.runtime.settings import Settings
from service_reconciler import settings as service_settings
from support.docs import annotations, markdown

_READ: Final = re.compile(r'^\s+(\w+)=[^#\n]*?"([A-Z][A-Z0-9_]{5,})"', re.MULTILINE)
TEXTS: Final = {
    "RAYBUS_NATS_URL": "Where NATS is; several servers of one cluster with commas between.",
    "RAYBUS_NATS_SEED_FILE": "File with the service's key; without it the server must have no users.",
    "RAYBUS_NATS_CA_FILE": "Who signed the server's certificate; without it no TLS, unless the URL says `tls://`.",
    "RAYBUS_KUBECONFIG": "A kubeconfig; without it the pod's ServiceAccount.",
    "RAYBUS_HTTP_PORT": "Port of `/metrics`, `/healthz` and `/readyz`.",
    "RAYBUS_NAMESPACE": "Where the Leases of raybus live.",
    "RAYBUS_LEASE_NAMESPACE": "Where the Lease lives by which KubeRay and the watcher exclude each other; without it as `RAYBUS_NAMESPACE`.",
    "RAYBUS_IDENTITY": "Name of this replica; without it the host's.",
    "RAYBUS_WATCH_NAMESPACES": "Namespaces that are looked after, with commas between; without it all.",
    "RAYBUS_LOG_LEVEL": f"One of {', '.join(f'`{each}`' for each in settings.LEVELS)}.",
    "RAYBUS_FEATURE_GATES": "`Name=true,Other=false`; see below.",
    "RAYBUS_WORKERS": "How many objects are looked at at once; as many again of the RayClusters that have all their pods.",
    "RAYBUS_CLUSTER_DOMAIN": "Domain of the Kubernetes cluster.",
    "RAYBUS_USE_KUBERNETES_PROXY": "Reach Ray dashboards through the API server, from outside the cluster.",
    "RAYBUS_TRACES": "File to which spans are appended; OpenTelemetry's `OTEL_*` variables work beside it.",
    "RAYBUS_OPERATOR_CONFIG": "The operator's file; see below.",
    "RAYBUS_BATCH_SCHEDULER": "`volcano`, `yunikorn`, `scheduler-plugins` or `kai-scheduler`, where the file names none.",
    "RAYBUS_GRACEFUL_DRAIN": "What a RayService without the annotation `raybus.io/graceful-drain` means; it changes pods.",
    "RAYBUS_WRITE_ZERO_VALUES": "Write the finalizer together with the zero values that Go writes, which makes a second generation.",
    "ENABLE_INIT_CONTAINER_INJECTION": "Workers wait for the GCS in an init container.",
    "ENABLE_PROBES_INJECTION": "Ray containers get probes where they have none.",
    "ENABLE_GCS_FT_REDIS_CLEANUP": "Redis is emptied when a fault-tolerant cluster is deleted.",
    "ENABLE_RANDOM_POD_DELETE": "Workers too many are deleted at random also while the autoscaler is on.",
    "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": "The head's Service has an address of its own.",
    "ENABLE_LOGIN_SHELL": "Ray starts in a login shell.",
    "ENABLE_DETERMINISTIC_HEAD_POD_NAME": "The head pod is called after its cluster.",
    "USE_INGRESS_ON_OPENSHIFT": "Make an Ingress on OpenShift too.",
    "CLUSTER_DOMAIN": "Domain of the Kubernetes cluster; `RAYBUS_CLUSTER_DOMAIN` goes first.",
    "RAYBUS_MAX_PODS_PER_CLUSTER": "Worker pods that one RayCluster may ask for ([limits](limits.md)).",
    "RAYBUS_MAX_GROUPS_PER_CLUSTER": "Worker groups of one RayCluster ([limits](limits.md)).",
    "RAYBUS_MAX_HOSTS_PER_REPLICA": "Hosts of one replica of a worker group ([limits](limits.md)).",
    "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV": "Seconds between looks at a cluster at rest; 0: none.",
    "ENABLE_ZERO_DOWNTIME": "What an absent upgrade strategy means: a new cluster, or none.",
}
"""What each variable says."""
_GATES: Final = {
    Gate.STATUS_CONDITIONS: "Conditions of RayClusters.",
    Gate.DELETION_POLICY: "Groups of a cluster without autoscaling can be suspended.",
    Gate.MULTI_HOST_INDEXING: "Pods of multi-host groups are numbered, and live and die together.",
    Gate.INCREMENTAL_UPGRADE: "Upgrades in steps; off, they go as blue/green, with the Event `IncrementalUpgradeDisabled`.",
    Gate.CRON_JOB: "raybus runs no RayCronJobs.",
    Gate.SIDECAR_SUBMITTER_RESTART: "raybus runs no RayJobs.",
    Gate.NETWORK_POLICY: "`networkPolicy` may be asked for; not supported yet.",
    Gate.EMBEDDED_STORAGE: "The GCS may keep its state on a volume: `backend: rocksdb`.",
    Gate.MTLS: "`tlsOptions` may be asked for; not supported yet.",
    Gate.HISTORY_SERVER: "`historyServerOptions` may be asked for; not supported yet.",
    Gate.KUBERNETES_WAS: "Gangs are placed by Kubernetes' own scheduler (`scheduling.k8s.io/v1alpha2`).",
}
_FILE: Final = {
    "headSidecarContainers": "Containers added to every head pod.",
    "workerSidecarContainers": "Containers added to every worker pod.",
    "defaultContainerEnvs": "Variables added to every Ray container that does not set them.",
    "defaultPodAnnotations": "Annotations of every Ray pod that does not set them.",
    "defaultPodLabels": "Labels of every Ray pod that does not set them.",
    "batchScheduler": "Which batch scheduler.",
    "enableBatchScheduler": "KubeRay's old switch for Volcano.",
}
_HEAD: Final = f"""\
# Configuration

Services are configured by environment variables, in the ConfigMap `raybus-config` of the deployment. A value that cannot be meant ends the
process with one line that names the variable, the value and what is allowed. {markdown.WRITTEN}
"""


def page() -> str:
    """Write the page."""
    lines = [_HEAD]
    for title, module, held in _parts():
        rows = [_row(name, held.get(name, "")) for name in _variables(module)]
        lines += [f"## {title}", "", *markdown.table(("variable", "default", "says"), rows), ""]
    gates = [
        (f"`{gate}`", "beta, on" if gate in BETA else "alpha, off", _heeded(gate), _GATES[gate])
        for gate in sorted(Gate)
    ]
    lines += [
        "## Feature gates",
        "",
        f"KubeRay's, by name; `{feature_gates.ALL_ALPHA}` and `{feature_gates.ALL_BETA}` stand for a stage.",
        "",
    ]
    lines += [*markdown.table(("gate", "stage", "heeded", "switches"), gates), ""]
    lines += ["## The operator's file", "", f"`{cluster_settings.FILE}` names a file as KubeRay's `--config` does.", ""]
    lines += ["```yaml", "apiVersion: config.ray.io/v1alpha1", "kind: Configuration", "```", ""]
    lines += [*markdown.table(("field", "says"), [(f"`{name}`", text) for name, text in _FILE.items()]), ""]
    lines += [
        "Fields of KubeRay's own process are accepted and have no effect; the service says at its start which are set.",
        "",
    ]
    rows = [(f"`{field}`", markdown.code(instead)) for field, instead in _without_effect()]
    lines += [*markdown.table(("field", "set in its place"), rows), ""]
    return "\n".join(lines)


def variables() -> list[str]:
    """Return every variable on the page."""
    return [name for _, module, _ in _parts() for name in _variables(module)]


def fields() -> set[str]:
    """Return every field of the operator's file that the page names."""
    return {*_FILE, *(field for field, _ in _without_effect()), "apiVersion", "kind"}


def named() -> set[str]:
    """Return every variable of ours that the services' source names."""
    text = "\n".join(path.read_text() for path in annotations.sources())
    return set(re.findall(r'"((?:RAYBUS|ENABLE|RAYCLUSTER|USE|CLUSTER)_[A-Z_]+[A-Z])"', text))


def _parts() -> list[tuple[str, ModuleType, dict[str, object]]]:
    shared = _defaults(settings, Settings.from_environment("watcher", {}))
    config = _defaults(cluster_config, cluster_config.Config.from_environment({}))
    service = _defaults(
        service_settings, service_settings.config_of(Settings.from_environment("service-reconciler", {}), {})
    )
    return [
        ("Every service", settings, shared),
        ("cluster-reconciler", cluster_settings, {}),
        ("cluster-reconciler, KubeRay's switches", cluster_config, config),
        ("service-reconciler", service_settings, service),
    ]  # fmt: skip


def _variables(module: ModuleType) -> list[str]:
    if module is cluster_settings:
        return [cluster_settings.FILE, cluster_settings.BATCH_SCHEDULER]
    return [name for _, name in _READ.findall(inspect.getsource(module))]


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


def _heeded(gate: Gate) -> str:
    own = Path(feature_gates.__file__)
    named = (path for path in annotations.sources() if path != own and f"Gate.{gate.name}" in path.read_text())
    return "yes" if next(named, None) is not None else "no"


def _without_effect() -> list[tuple[str, str]]:
    """Return the fields that mean nothing here, each with the variable that stands in for it."""
    kinds = {field.encode_name: field.default for field in msgspec.structs.fields(operator_file.OperatorFile)}
    found: list[tuple[str, str]] = []
    for name in (name for name, default in kinds.items() if default is None):
        file = _with(name)
        (told,) = operator_file.without_effect(file)
        found.append((name, told.removeprefix(name).strip(" ()").removeprefix("set ")))
    return found


def _with(name: str) -> operator_file.OperatorFile:
    for value in ("1", "true", "x"):
        text = f"apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n{name}: {value}\n"
        try:
            return operator_file.parse(text, path=name)
        except Exception:  # noqa: BLE001, S112 - the next value has another type
            continue
    raise AssertionError(name)
