"""Rules for a RayCronJob, in KubeRay's order and with KubeRay's texts (spec rayjob §20.2)."""

from datetime import tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from common.api import kubernetes_syntax
from common.api.meta import ObjectMeta
from common.api.ray_cron_job import MAX_SCHEDULE, RayCronJob
from common.api.ray_job import RayJob
from common.feature_gates import Gates
from common.validation import ray_job as job_rules
from job_reconciler.cron import policy, schedule
from job_reconciler.cron.policy import CronPolicy, CronPolicyError
from job_reconciler.cron.schedule import Schedule, ScheduleError

MAX_NAME: Final = 36
"""Maximum characters of a RayCronJob's name.

The name of a RayJob has 11 more: a hyphen, and up to 10 digits.
"""
_LOCAL: Final = "Local"
_MAX_ZONE: Final = 255
"""Maximum characters of a time zone's name. Linux does not have longer file names."""


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule, time zone and options of a valid RayCronJob."""

    schedule: Schedule
    zone: tzinfo
    policy: CronPolicy


class InvalidCronJob(ValueError):
    """Raised for the first rule that a RayCronJob breaks; the text describes it."""


def parse(cron_job: RayCronJob, local_zone: tzinfo, gates: Gates) -> Timetable:
    """Check a RayCronJob, and return its timetable. Raises `InvalidCronJob`.

    `local_zone` is used if the RayCronJob does not name a time zone.
    """
    name = cron_job.metadata.name
    if len(name) > MAX_NAME:
        raise InvalidCronJob(f"RayCronJob name should be no more than {MAX_NAME} characters")
    if problems := kubernetes_syntax.dns_1035_problems(name):
        raise InvalidCronJob(
            f"RayCronJob name should be a valid DNS1035 label, because each RayJob's name begins "
            f"with it: [{' '.join(problems)}]"
        )
    try:
        spec = cron_job.spec
    except msgspec.ValidationError as error:
        raise InvalidCronJob(str(error)) from None
    timetable = Timetable(
        schedule=_parse_schedule(spec.schedule),
        zone=_find_zone(spec.time_zone, local_zone),
        policy=_parse_policy(cron_job),
    )
    template = RayJob(
        metadata=ObjectMeta(),
        spec_json=msgspec.Raw(msgspec.json.encode(cron_job.raw_job_template)),
    )
    if violation := job_rules.spec(template, gates):
        raise InvalidCronJob(f"invalid RayJob template: {violation}")
    return timetable


def _parse_schedule(text: str) -> Schedule:
    if len(text) > MAX_SCHEDULE:  # CRDs of KubeRay have no limit, and a long list takes seconds
        raise InvalidCronJob(f"schedule should be no more than {MAX_SCHEDULE} characters")
    if "TZ" in text:
        raise InvalidCronJob("cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    try:
        found = schedule.parse(text)
    except ScheduleError as error:
        raise InvalidCronJob(f"invalid cron schedule: {error}") from None
    if not found.is_possible:
        raise InvalidCronJob(f"invalid cron schedule: no date matches '{text}'")
    return found


def _find_zone(name: str | None, local_zone: tzinfo) -> tzinfo:
    if name is None or name == _LOCAL:
        return local_zone
    if not name:
        raise InvalidCronJob(
            "timeZone must not be empty string, omit the field to use the local time zone of the "
            "KubeRay operator"
        )
    if ".." in name or name[0] in "/\\" or "\\" in name:
        raise InvalidCronJob("invalid time zone: time: invalid location name")
    try:
        if len(name) <= _MAX_ZONE:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise InvalidCronJob(f"invalid time zone: unknown time zone {name}")


def _parse_policy(cron_job: RayCronJob) -> CronPolicy:
    try:
        return policy.parse(cron_job.metadata.annotations)
    except CronPolicyError as error:
        raise InvalidCronJob(str(error)) from None
