"""RayCronJob (ray.io/v1), with all fields; `ray_cluster` explains the structs.

Source: spec rayjob §20.1.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, cast

import msgspec

from common.api.meta import ApiStruct, Time
from common.api.opaque import Api, Json
from common.api.ray_cluster import RayObject
from common.api.ray_job import RayJobSpec

KIND: Final = "RayCronJob"
MAX_SCHEDULE: Final = 1024
"""Maximum characters of a schedule. A schedule that lists all 60 minutes has 170."""


class RayCronJobSpec(ApiStruct, frozen=True, kw_only=True):
    """The desired state of a RayCronJob."""

    job_template: Annotated[RayJobSpec, Api(keep=True)] = RayJobSpec()
    schedule: Annotated[str, Api(keep=True, max_length=MAX_SCHEDULE)] = ""
    time_zone: Annotated[str | None, Api(min_length=1, max_length=253)] = None
    suspend: bool | None = None


class RayCronJobStatus(ApiStruct, frozen=True, kw_only=True):
    """The observed state of a RayCronJob."""

    last_schedule_time: Time | None = None


class RayCronJob(RayObject, frozen=True, kw_only=True, rename="camel", dict=True):
    """A RayCronJob as read from the API."""

    status: RayCronJobStatus = RayCronJobStatus()

    @cached_property
    def spec(self) -> RayCronJobSpec:
        """The decoded spec; raises `msgspec.ValidationError`, which names the field."""
        return msgspec.json.decode(self.spec_json, type=RayCronJobSpec, strict=False)

    @property
    def raw_job_template(self) -> Json:
        """`spec.jobTemplate` as written, for copying. Do not change it in place."""
        value = self.raw_spec.get("jobTemplate")
        return cast("Json", value) if isinstance(value, dict) else {}


def decode(obj: bytes | str | Mapping[str, Any]) -> RayCronJob:
    """Decode a RayCronJob from JSON text or plain data."""
    return msgspec.json.decode(
        obj if isinstance(obj, bytes | str) else msgspec.json.encode(obj), type=RayCronJob
    )
