"""The CRDs of the four kinds of `ray.io`: versions, printer columns, names.

v1alpha1 lacks the newer fields. For pod templates, Services and statuses, its schema has only the
names and types of fields; only v1 and the pod API validate their values. This keeps the file small
enough for `kubectl apply`, which copies it into an annotation of at most 262,144 bytes.

Source: spec raycluster §1; spec rayservice §2; spec rayjob §2, §20.1.
"""

from typing import Any, Final

import msgspec

from common.api import go_types
from common.api.go_types import PREFIX
from crd_generator import schema
from crd_generator.schema import Schema, Version

V1: Final = Version()
V1ALPHA1: Final = Version(
    bare=frozenset(
        {
            *(f"core/v1.{kind}" for kind in ("PodTemplateSpec", "Service", "SecurityContext")),
            *(f"core/v1.{kind}" for kind in ("EnvVar", "EnvFromSource", "VolumeMount")),
            *(go_types.CLUSTER_STATUS, go_types.SERVICE_STATUS, go_types.JOB_STATUS),
        }
    ),
    left_out=frozenset(
        f"{PREFIX}{struct}.{field}"
        for struct, fields in {
            "RayClusterSpec": (
                "upgradeStrategy authOptions managedBy gcsFaultToleranceOptions "
                "historyServerOptions networkPolicy tlsOptions"
            ),
            "HeadGroupSpec": "ingressOptions resources labels",
            "WorkerGroupSpec": "suspend idleTimeoutSeconds priority resources labels numOfHosts",
            "AutoscalerOptions": "version command args",
            "RayClusterStatus": "conditions stateTransitionTimes",
            "HeadInfo": "podName serviceName",
            "RayServiceSpec": (
                "rayClusterDeletionDelaySeconds upgradeStrategy managedBy "
                "excludeHeadPodFromServeSvc suspend"
            ),
            "RayServiceStatus": "conditions numServeEndpoints",
            "ClusterServiceStatus": "targetCapacity trafficRoutedPercent lastTrafficMigratedTime",
            "RayJobSpec": (
                "activeDeadlineSeconds backoffLimit submitterConfig managedBy deletionStrategy "
                "submissionMode preRunningDeadlineSeconds"
            ),
            "RayJobStatus": ("rayJobInfo reason succeeded failed jobStatusCheckFailureStartTime"),
        }.items()
        for field in fields.split()
    ),
    required=frozenset(
        f"{PREFIX}{field}"
        for field in (
            "HeadGroupSpec.rayStartParams",
            "WorkerGroupSpec.rayStartParams",
            "RayJobSpec.entrypoint",
        )
    ),
    optional=frozenset({f"{PREFIX}RayServiceSpec.rayClusterConfig"}),
    added={
        f"{PREFIX}{struct}": {"healthLastUpdateTime": "time"}
        for struct in ("AppStatus", "ServeDeploymentStatus")
    },
)
JOB_V1ALPHA1: Final = msgspec.structs.replace(
    V1ALPHA1, opaque=frozenset({"core/v1.PodTemplateSpec", "core/v1.Service"})
)
"""Version v1alpha1 of RayJob, whose schema does not describe the fields of pod templates.

A RayJob has three pod templates, which would make the CRD too large. The pods' own API and v1 still
validate the templates.
"""

_CLUSTER_COLUMNS: Final = (
    ("desired workers", "integer", ".status.desiredWorkerReplicas", 0),
    ("available workers", "integer", ".status.availableWorkerReplicas", 0),
    ("cpus", "string", ".status.desiredCPU", 0),
    ("memory", "string", ".status.desiredMemory", 0),
    ("gpus", "string", ".status.desiredGPU", 0),
    ("tpus", "string", ".status.desiredTPU", 1),
    ("status", "string", ".status.state", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
    ("head pod IP", "string", ".status.head.podIP", 1),
    ("head service IP", "string", ".status.head.serviceIP", 1),
)
_SERVICE_COLUMNS: Final = (
    ("service status", "string", ".status.serviceStatus", 0),
    ("num serve endpoints", "string", ".status.numServeEndpoints", 0),
)
_JOB_COLUMNS: Final = (
    ("job status", "string", ".status.jobStatus", 0),
    ("deployment status", "string", ".status.jobDeploymentStatus", 0),
    ("ray cluster name", "string", ".status.rayClusterName", 0),
    ("start time", "string", ".status.startTime", 0),
    ("end time", "string", ".status.endTime", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
)
_CRON_JOB_COLUMNS: Final = (
    ("schedule", "string", ".spec.schedule", 0),
    ("timezone", "string", ".spec.timeZone", 0),
    ("last schedule", "date", ".status.lastScheduleTime", 0),
    ("age", "date", ".metadata.creationTimestamp", 0),
    ("suspend", "boolean", ".spec.suspend", 0),
)
_Columns = tuple[tuple[str, str, str, int], ...]


def all_definitions() -> dict[str, Schema]:
    """Return the CRDs of all `ray.io` kinds by file name."""
    cluster = _definition(
        "RayCluster",
        _version("v1", go_types.CLUSTER_SPEC, go_types.CLUSTER_STATUS, _CLUSTER_COLUMNS),
        _version("v1alpha1", go_types.CLUSTER_SPEC, go_types.CLUSTER_STATUS, _CLUSTER_COLUMNS),
    )
    service = _definition(
        "RayService",
        _version("v1", go_types.SERVICE_SPEC, go_types.SERVICE_STATUS, _SERVICE_COLUMNS),
        _version("v1alpha1", go_types.SERVICE_SPEC, go_types.SERVICE_STATUS, ()),
    )
    job = _definition(
        "RayJob",
        _version("v1", go_types.JOB_SPEC, go_types.JOB_STATUS, _JOB_COLUMNS),
        _version("v1alpha1", go_types.JOB_SPEC, go_types.JOB_STATUS, (), JOB_V1ALPHA1),
    )
    cron_job = _definition(
        "RayCronJob",
        _version("v1", go_types.CRON_JOB_SPEC, go_types.CRON_JOB_STATUS, _CRON_JOB_COLUMNS),
    )
    return {
        "ray.io_rayclusters.yaml": cluster,
        "ray.io_rayservices.yaml": service,
        "ray.io_rayjobs.yaml": job,
        "ray.io_raycronjobs.yaml": cron_job,
    }


def _definition(kind: str, v1: Schema, *deprecated: Schema) -> Schema:
    plural = f"{kind.lower()}s"
    warning = (
        f"ray.io/v1alpha1 {kind} is deprecated; use ray.io/v1 {kind}. "
        "v1alpha1 receives no new fields and will be unavailable in KubeRay 1.9."
    )
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ray.io"},
        "spec": {
            "group": "ray.io",
            "names": {
                "categories": ["all"],
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "scope": "Namespaced",
            "versions": [
                v1,
                *(
                    {**version, "deprecated": True, "deprecationWarning": warning}
                    for version in deprecated
                ),
            ],
        },
    }


def _version(
    name: str, spec: str, status: str, columns: _Columns, version: Version | None = None
) -> Schema:
    if version is None:
        version = V1 if name == "v1" else V1ALPHA1
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": schema.build(spec, version),
        "status": schema.build(status, version),
    }
    result: Schema = {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    if columns:
        result["additionalPrinterColumns"] = [_column(*column) for column in columns]
    return result


def _column(name: str, kind: str, path: str, priority: int) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column
