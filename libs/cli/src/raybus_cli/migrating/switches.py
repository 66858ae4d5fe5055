"""Translates KubeRay's flags, feature gates and environment variables into raybus's configuration.

The services' own parsers read the result, so that the check and the services agree.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cluster_reconciler import settings as cluster_settings
from cluster_reconciler.config import Config as ClusterConfig
from common import errors, feature_gates
from common.ray import operator_file
from common.settings import OPERATOR_FILE, Settings
from job_reconciler import settings as job_settings
from job_reconciler.settings import Config as JobConfig
from raybus_cli.doctor.operator import InstalledOperator
from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import MigrationFinding
from service_reconciler import settings as service_settings
from service_reconciler.settings import Config as ServiceConfig

GATES: Final = "RAYBUS_FEATURE_GATES"
NAMESPACES: Final = "RAYBUS_WATCH_NAMESPACES"
PROXY: Final = "RAYBUS_USE_KUBERNETES_PROXY"
DOMAIN: Final = "RAYBUS_CLUSTER_DOMAIN"
WORKERS: Final = "RAYBUS_WORKERS"
LEASES: Final = "RAYBUS_LEASE_NAMESPACE"
NO_EQUIVALENT_NEEDED: Final = "needs nothing here"
SAME_IN_RAYBUS: Final = "the same"
ADMISSION: Final = "a policy of the API server instead: kubectl apply -k deploy/admission"

FLAGS: Final[dict[str, str]] = {
    "feature-gates": GATES,
    "watch-namespace": NAMESPACES,
    "batch-scheduler": operator_file.BATCH_SCHEDULER,
    "enable-batch-scheduler": f"{operator_file.BATCH_SCHEDULER}=volcano",
    "config": OPERATOR_FILE,
    "use-kubernetes-proxy": PROXY,
    "reconcile-concurrency": WORKERS,
    "leader-election-namespace": LEASES,
    "metrics-addr": "RAYBUS_HTTP_PORT",
    "health-probe-bind-address": "RAYBUS_HTTP_PORT",
    "enable-leader-election": NO_EQUIVALENT_NEEDED,
    "enable-metrics": NO_EQUIVALENT_NEEDED,
    "forced-cluster-upgrade": NO_EQUIVALENT_NEEDED,
    "log-file-path": NO_EQUIVALENT_NEEDED,
    "log-file-encoder": NO_EQUIVALENT_NEEDED,
    "log-stdout-encoder": NO_EQUIVALENT_NEEDED,
    "qps": NO_EQUIVALENT_NEEDED,
    "burst": NO_EQUIVALENT_NEEDED,
    "kubeconfig": "RAYBUS_KUBECONFIG",
    "zap-log-level": "RAYBUS_LOG_LEVEL",
    "zap-devel": NO_EQUIVALENT_NEEDED,
    "zap-encoder": NO_EQUIVALENT_NEEDED,
    "zap-stacktrace-level": NO_EQUIVALENT_NEEDED,
    "zap-time-encoder": NO_EQUIVALENT_NEEDED,
}
"""Flags of KubeRay's operator, and their equivalents in raybus."""
VARIABLES: Final[dict[str, str]] = {
    "CLUSTER_DOMAIN": DOMAIN,
    "ENABLE_DETERMINISTIC_HEAD_POD_NAME": SAME_IN_RAYBUS,
    "ENABLE_GCS_FT_REDIS_CLEANUP": SAME_IN_RAYBUS,
    "ENABLE_INIT_CONTAINER_INJECTION": SAME_IN_RAYBUS,
    "ENABLE_LOGIN_SHELL": SAME_IN_RAYBUS,
    "ENABLE_PROBES_INJECTION": SAME_IN_RAYBUS,
    "ENABLE_RANDOM_POD_DELETE": SAME_IN_RAYBUS,
    "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": SAME_IN_RAYBUS,
    "ENABLE_ZERO_DOWNTIME": SAME_IN_RAYBUS,
    "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV": SAME_IN_RAYBUS,
    "USE_INGRESS_ON_OPENSHIFT": SAME_IN_RAYBUS,
    "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES": SAME_IN_RAYBUS,
    "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS": SAME_IN_RAYBUS,
    "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS": SAME_IN_RAYBUS,
    "ENABLE_WEBHOOKS": ADMISSION,
}
"""Environment variables of KubeRay's operator, and their equivalents in raybus."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the services of raybus."""

    clusters: ClusterConfig
    services: ServiceConfig
    jobs: JobConfig
    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty means all."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of KubeRay's operator (`kuberay`), and its equivalent in raybus (`here`)."""

    kuberay: str
    value: str
    here: str


class _RecordingEnvironment(Mapping[str, str]):
    """An empty environment that records the names of the variables that are looked up."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def list_variables() -> frozenset[str]:
    """Return the names of the environment variables that the services read."""
    noting = _RecordingEnvironment()
    _read(noting)
    return frozenset(noting.asked)


def translate_settings(
    operator: InstalledOperator, file_text: str | None
) -> tuple[dict[str, str], list[MigrationFinding]]:
    """Translate the settings of KubeRay's operator.

    Returns the environment variables that give raybus the same configuration, and findings for
    settings without an equivalent. `file_text` is the operator's configuration file, None without
    one. The operator ignores flags for which the file has a field.
    """
    known, notes = list_variables(), list[MigrationFinding]()
    given = {name: value for name, value in operator.environment.items() if value}
    wanted = {
        name: value
        for name, value in given.items()
        if VARIABLES.get(name, SAME_IN_RAYBUS) == SAME_IN_RAYBUS
    }
    wanted = {name: value for name, value in wanted.items() if name in known}
    if domain := given.get("CLUSTER_DOMAIN"):
        wanted[DOMAIN] = domain
    gates, strange = _parse_gates(operator.flags.get("feature-gates", ""))
    notes += strange
    if gates:
        wanted[GATES] = feature_gates.spell(gates)
    file = _parse_file(file_text, operator)
    flags = operator.flags
    notes += [
        findings.report_unsupported(
            f"the flag --{name} is not known here", "see whether you use it"
        )
        for name in sorted(flags.keys() - FLAGS.keys())
    ]
    workers = flags.get("reconcile-concurrency") if file is None else file.reconcile_concurrency
    if workers:
        wanted[WORKERS] = str(workers)
    leases = (
        flags.get("leader-election-namespace") if file is None else file.leader_election_namespace
    )
    if leases:
        wanted[LEASES] = leases
    namespaces = flags.get("watch-namespace", "") if file is None else file.watch_namespace or ""
    if namespaces:
        wanted[NAMESPACES] = namespaces
    if file is None and (scheduler := _find_scheduler(flags)):
        wanted[operator_file.BATCH_SCHEDULER] = scheduler
    through_proxy = (
        flags.get("use-kubernetes-proxy") == "true" if file is None else file.use_kubernetes_proxy
    )
    if through_proxy:
        wanted[PROXY] = "true"
    return wanted, notes


def list_settings(operator: InstalledOperator) -> list[Setting]:
    """Return all flags and variables of an operator, with their equivalents in raybus."""
    known = list_variables()
    flags = [
        Setting(kuberay=f"--{name}", value=value, here=FLAGS.get(name, "unknown here"))
        for name, value in sorted(operator.flags.items())
    ]
    variables = [
        Setting(
            kuberay=name,
            value=value,
            here=VARIABLES.get(name)
            or (SAME_IN_RAYBUS if name in known else "no variable of raybus"),
        )
        for name, value in sorted(operator.environment.items())
    ]
    return flags + variables


def build_configuration(environment: Mapping[str, str], file_text: str | None) -> Configuration:
    """Return the configuration that raybus would have with an environment.

    `file_text` is the text of raybus's configuration file, None without a file. Raise `InvalidSpec`
    for invalid values.
    """
    parsed = _read({name: value for name, value in environment.items() if name != OPERATOR_FILE})
    if file_text is None:
        return parsed
    file = cluster_settings.parse(file_text, path=OPERATOR_FILE)
    clusters = cluster_settings.apply(parsed.clusters, file)
    jobs = msgspec.structs.replace(parsed.jobs, batch_scheduler=clusters.batch_scheduler)
    return msgspec.structs.replace(parsed, clusters=clusters, jobs=jobs)


def find_differences(wanted: Configuration, actual: Configuration) -> list[str]:
    """Return how an installed raybus (`actual`) is configured differently from KubeRay (`wanted`).

    An entry reads `field: KubeRay …, raybus …`.
    """
    differences: list[str] = []
    pairs = (
        (wanted.clusters, actual.clusters),
        (wanted.services, actual.services),
        (wanted.jobs, actual.jobs),
    )
    for theirs, ours in pairs:
        for field in theirs.__struct_fields__:
            pair = _format_value(getattr(theirs, field)), _format_value(getattr(ours, field))
            text = f"{field.replace('_', ' ')}: KubeRay {pair[0]}, raybus {pair[1]}"
            if pair[0] != pair[1] and text not in differences:
                differences.append(text)
    return differences


def _format_value(value: object) -> str:
    if isinstance(value, frozenset):
        # Only feature gates form a set.
        return ",".join(sorted(map(str, value))) or "none"  # pyright: ignore[reportUnknownArgumentType]
    return "none" if value == "" else str(value)


def _read(environment: Mapping[str, str]) -> Configuration:
    here = _drop_file_variables(environment)
    settings = Settings.from_environment("migrate", here)
    return Configuration(
        clusters=cluster_settings.configure(settings, environment),
        services=service_settings.config_of(settings.feature_gates, environment),
        jobs=job_settings.read_config(
            settings.feature_gates,
            environment,
            cluster_domain=settings.cluster_domain,
            batch_scheduler=operator_file.read_batch_scheduler(here, settings.feature_gates),
        ),
        namespaces=settings.watch_namespaces,
    )


def _drop_file_variables(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment without the variables that name files in a pod.

    Such files do not exist on this machine.
    """
    if isinstance(environment, _RecordingEnvironment):
        return environment
    return {
        name: value
        for name, value in environment.items()
        if not name.endswith(("_FILE", "_KUBECONFIG", "_TRACES"))
    }


def _parse_gates(text: str) -> tuple[dict[str, bool], list[MigrationFinding]]:
    """Parse feature gates one by one, so that an unknown gate does not hide the others."""
    named, notes = dict[str, bool](), list[MigrationFinding]()
    for part in filter(None, (entry.strip() for entry in text.split(","))):
        try:
            named |= feature_gates.parse(part)
        except errors.InvalidSpec:
            notes.append(
                findings.report_unsupported(
                    f"the feature gate {part} is not known here", "see whether you use it"
                )
            )
    return named, notes


def _find_scheduler(flags: Mapping[str, str]) -> str:
    is_volcano = flags.get("enable-batch-scheduler") == "true"
    return flags.get("batch-scheduler", "") or ("volcano" if is_volcano else "")


def _parse_file(
    text: str | None, operator: InstalledOperator
) -> cluster_settings.OperatorFile | None:
    return (
        None
        if text is None
        else cluster_settings.parse(text, path=operator.flags.get("config", "--config"))
    )
