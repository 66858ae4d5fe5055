"""What is known of a cluster that is to be taken over; pure data, None where the caller may not look."""

from typing import Any, Final

import msgspec

from common.api.core import View
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import Resource
from raybus_cli.doctor.facts import Lease
from raybus_cli.migrating.operator import Operator

RAY_JOB: Final = Resource(group="ray.io", kind="RayJob", plural="rayjobs")
RAY_CRON_JOB: Final = Resource(group="ray.io", kind="RayCronJob", plural="raycronjobs")
_WEBHOOKS: Final = "admissionregistration.k8s.io"
VALIDATING: Final = Resource(
    group=_WEBHOOKS, kind="ValidatingWebhookConfiguration", plural="validatingwebhookconfigurations"
)
MUTATING: Final = Resource(group=_WEBHOOKS, kind="MutatingWebhookConfiguration", plural="mutatingwebhookconfigurations")


class JobStatus(View, frozen=True, kw_only=True):
    """How a RayJob does."""

    job_deployment_status: str = ""


class JobSpec(View, frozen=True, kw_only=True):
    """What a RayJob or RayCronJob asks for, as far as it matters here."""

    suspend: bool = False
    managed_by: str | None = None


class Job(View, frozen=True, kw_only=True):
    """A RayJob or a RayCronJob."""

    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Hook(View, frozen=True, kw_only=True):
    """One webhook of a configuration."""

    name: str = ""
    failure_policy: str = "Fail"
    rules: tuple[Json, ...] = ()
    client_config: Json = msgspec.field(default_factory=dict[str, Any])


class WebhookConfiguration(View, frozen=True, kw_only=True):
    """A ValidatingWebhookConfiguration or a MutatingWebhookConfiguration."""

    metadata: ObjectMeta
    webhooks: tuple[Hook, ...] = ()


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Both operators, as they are installed."""

    kuberay: list[Operator] | None
    kuberay_file: str | None = None
    """What configures the first of KubeRay's operators, where a file does."""
    raybus: dict[str, Operator] = {}
    """The services of raybus, by name."""
    raybus_file: str | None = None
    leases: list[Lease] | None = None
    """Those by which either leads."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around the clusters and services."""

    jobs: list[Job] | None = None
    cron_jobs: list[Job] | None = None
    webhooks: list[tuple[str, WebhookConfiguration]] | None = None
    """Kind and configuration."""
    has_gateway_api: bool = False
