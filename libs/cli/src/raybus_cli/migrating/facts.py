"""The facts of a cluster that is to be taken over; pure data, None where the caller may not read them."""

from typing import Any, Final

import msgspec

from common.api.core import View
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import Resource
from raybus_cli.doctor.facts import Lease
from raybus_cli.doctor.operator import Operator

RAY_JOB: Final = Resource(group="ray.io", kind="RayJob", plural="rayjobs")
RAY_CRON_JOB: Final = Resource(group="ray.io", kind="RayCronJob", plural="raycronjobs")
_WEBHOOKS: Final = "admissionregistration.k8s.io"
VALIDATING: Final = Resource(
    group=_WEBHOOKS, kind="ValidatingWebhookConfiguration", plural="validatingwebhookconfigurations"
)
MUTATING: Final = Resource(group=_WEBHOOKS, kind="MutatingWebhookConfiguration", plural="mutatingwebhookconfigurations")


class JobStatus(View, frozen=True, kw_only=True):
    """The state of a RayJob."""

    job_deployment_status: str = ""


class JobSpec(View, frozen=True, kw_only=True):
    """The relevant fields of a RayJob or RayCronJob."""

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
    """The configuration file of the first of KubeRay's operators, if it has one."""
    raybus: dict[str, Operator] = {}
    """The services of raybus, by name."""
    raybus_file: str | None = None
    leases: list[Lease] | None = None
    """The Leases of their leader elections."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The other objects that matter."""

    jobs: list[Job] | None = None
    cron_jobs: list[Job] | None = None
    webhooks: list[tuple[str, WebhookConfiguration]] | None = None
    """Kind and configuration."""
    has_gateway_api: bool = False
