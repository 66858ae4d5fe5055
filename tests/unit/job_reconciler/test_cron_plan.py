"""The plan of a RayCronJob: which runs start, which jobs are deleted (spec rayjob §20.3, §20.4)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.api import ray_cron_job, ray_job
from common.api.opaque import Json
from common.api.ray_job import RayJob
from common.feature_gates import BETA
from common.runtime.actions import (
    Action,
    Create,
    Delete,
    EmitEvent,
    IfExists,
    Plan,
    UpdateStatus,
)
from job_reconciler.cron import plan
from job_reconciler.cron.plan import ObservedCronJob
from support.builders.ray_job import a_cluster_spec

CREATED = "2026-01-01T00:00:00Z"
TEMPLATE: Json = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec()}


def _at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-01T{text}").replace(tzinfo=UTC)


def _job(name: str, status: str, created: str = "00:00:00", **meta: object) -> RayJob:
    return ray_job.decode(
        {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-{name}",
                "creationTimestamp": f"2026-01-01T{created}Z",
                **meta,
            },
            "status": {"jobDeploymentStatus": status},
        }
    )


def _plan(
    now: str | datetime,
    *jobs: RayJob,
    last: str = "",
    annotations: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    **spec: object,
) -> Plan[Action]:
    cron_job = ray_cron_job.decode(
        {
            "metadata": {
                "name": "nightly",
                "namespace": "ml",
                "uid": "uid-1",
                "creationTimestamp": CREATED,
                "annotations": annotations or {},
                **(meta or {}),
            },
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": TEMPLATE, **spec},
            "status": {"lastScheduleTime": last} if last else {},
        }
    )
    observed = ObservedCronJob(
        cron_job=cron_job, jobs=jobs, now=_at(now) if isinstance(now, str) else now
    )

    return plan.make_plan(observed, BETA)


def _created(found: Plan[Action]) -> list[str]:
    return [each.body["metadata"]["name"] for each in found.actions if isinstance(each, Create)]


def _deleted(found: Plan[Action]) -> list[str]:
    return [each.name for each in found.actions if isinstance(each, Delete)]


def _events(found: Plan[Action]) -> list[tuple[str, str]]:
    return [
        (each.event.reason, each.event.note)
        for each in found.actions
        if isinstance(each, EmitEvent)
    ]


@pytest.mark.acceptance("rayjob", 129, 133)
def test_a_due_run_becomes_a_job_of_its_tick() -> None:
    found = _plan("00:05:30")
    create, status = found.actions
    assert isinstance(create, Create)
    assert create.if_exists is IfExists.NEED_OWN
    assert create.body == {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": f"nightly-{int(_at('00:05:00').timestamp()) // 60}",
            "namespace": "ml",
            "labels": {"ray.io/cronjob-name": "nightly"},
            "annotations": {"ray.io/cronjob-scheduled-timestamp": "2026-01-01T00:05:00Z"},
            "ownerReferences": [
                {
                    "apiVersion": "ray.io/v1",
                    "kind": "RayCronJob",
                    "name": "nightly",
                    "uid": "uid-1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": TEMPLATE,
    }
    assert isinstance(status, UpdateStatus)
    assert status.status == ray_cron_job.RayCronJobStatus(last_schedule_time=_at("00:05:00"))
    assert found.requeue_at == _at("00:10:00")


def test_before_the_first_tick_nothing_runs() -> None:
    found = _plan("00:04:59")
    assert found.actions == ()
    assert found.requeue_at == _at("00:05:00")


@pytest.mark.acceptance("rayjob", 130)
def test_a_tick_whose_status_was_not_written_has_the_same_name_again() -> None:
    assert _created(_plan("00:05:01")) == _created(_plan("00:09:59"))


@pytest.mark.acceptance("rayjob", 131)
def test_after_its_tick_a_minutely_schedule_waits_for_the_next_one() -> None:
    found = _plan("00:01:30", schedule="*/1 * * * *", last="2026-01-01T00:01:00Z")
    assert found.actions == ()
    assert found.requeue_at == _at("00:02:00")


@pytest.mark.acceptance("rayjob", 135)
def test_after_an_outage_only_the_newest_missed_run_starts() -> None:
    found = _plan("01:00:20", schedule="* * * * *", last="2026-01-01T00:00:00Z")
    assert _created(found) == [f"nightly-{int(_at('01:00:00').timestamp()) // 60}"]
    assert _events(found) == [
        (
            "MissSchedule",
            "The runs from 2026-01-01T00:01:00Z until before 2026-01-01T01:00:00Z were missed and "
            "are not started",
        )
    ]


@pytest.mark.acceptance("rayjob", 135)
def test_a_schedule_that_becomes_minutely_starts_one_run() -> None:
    found = _plan(
        datetime(2026, 1, 20, 12, 0, 5, tzinfo=UTC),
        schedule="* * * * *",
        last="2025-12-31T23:00:00Z",
    )
    assert len(_created(found)) == 1
    assert found.requeue_at == datetime(2026, 1, 20, 12, 1, tzinfo=UTC)


def test_a_run_on_time_reports_no_missed_run() -> None:
    assert _events(_plan("00:05:01")) == []


@pytest.mark.acceptance("rayjob", 132)
def test_a_suspended_cron_job_starts_nothing_and_says_so() -> None:
    found = _plan("00:30:00", suspend=True)
    assert _created(found) == []
    assert _events(found) == [
        ("SuspendedRayCronJob", "RayCronJob suspended, no new RayJobs will be created")
    ]
    assert found.requeue_at is None
    assert len(_created(_plan("00:30:00", suspend=False))) == 1


@pytest.mark.acceptance("rayjob", 139)
def test_a_cron_job_in_deletion_starts_nothing() -> None:
    found = _plan("00:05:30", meta={"deletionTimestamp": CREATED})
    assert (found.actions, found.requeue_at) == ((), None)


@pytest.mark.acceptance("rayjob", 138)
def test_runs_within_one_minute_have_different_names() -> None:
    last, names = CREATED, list[str]()
    for second in (30, 60, 90, 120):
        now = _at("00:00:00") + timedelta(seconds=second)
        found = _plan(now, schedule="@every 30s", last=last)
        names += _created(found)
        last = now.isoformat()
    assert len(set(names)) == 4
    assert max(map(len, names)) - len("nightly") == 11


def test_every_minute_keeps_kuberays_name() -> None:
    (name,) = _created(_plan("00:01:00", schedule="@every 1m"))
    assert name == f"nightly-{int(_at('00:01:00').timestamp()) // 60}"


@pytest.mark.acceptance("rayjob", 128, 137)
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"schedule": "invalid cron"},
            "invalid cron schedule: expected exactly 5 fields, found 2: [invalid cron]",
        ),
        (
            {"schedule": "TZ=UTC */5 * * * *"},
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
        (
            {"schedule": f"{'1,' * 512}1 * * * *"},
            "schedule should be no more than 1024 characters",
        ),
        ({"timeZone": "Invalid/Zone"}, "invalid time zone: unknown time zone Invalid/Zone"),
        ({"timeZone": "America"}, "invalid time zone: unknown time zone America"),
        ({"timeZone": "x" * 300}, f"invalid time zone: unknown time zone {'x' * 300}"),
        ({"timeZone": "../etc/passwd"}, "invalid time zone: time: invalid location name"),
        ({"timeZone": "/etc/localtime"}, "invalid time zone: time: invalid location name"),
        (
            {"timeZone": ""},
            "timeZone must not be empty string, omit the field to use the local time zone of the "
            "KubeRay operator",
        ),
        ({"schedule": "0 0 30 2 *"}, "invalid cron schedule: no date matches '0 0 30 2 *'"),
        (
            {"meta": {"name": "n" * 37}},
            "RayCronJob name should be no more than 36 characters",
        ),
        (
            {"jobTemplate": {}},
            "invalid RayJob template: The RayJob spec is invalid: one of RayClusterSpec or "
            "ClusterSelector must be set",
        ),
    ],
)
def test_an_invalid_cron_job_starts_nothing_and_has_an_event(
    changes: dict[str, Any], error: str
) -> None:
    found = _plan("00:05:30", **changes)
    name = changes.get("meta", {}).get("name", "nightly")
    assert _events(found) == [("InvalidRayCronJobSpec", f"ml/{name}: {error}")]
    assert len(found.actions) == 1
    assert found.requeue_at is None


@pytest.mark.acceptance("rayjob", 137)
def test_a_name_that_no_job_can_begin_with_is_refused() -> None:
    ((reason, note),) = _events(_plan("00:05:30", meta={"name": "my.cron"}))
    assert reason == "InvalidRayCronJobSpec"
    assert "RayCronJob name should be a valid DNS1035 label" in note


def test_a_spec_that_does_not_decode_is_refused_by_its_field() -> None:
    ((reason, note),) = _events(_plan("00:05:30", suspend="maybe"))
    assert reason == "InvalidRayCronJobSpec"
    assert "suspend" in note


def test_the_zone_of_the_spec_decides_when_a_run_is_due() -> None:
    found = _plan("13:45:01", schedule="45 21 * * *", timeZone="Asia/Taipei")
    (create,) = (each for each in found.actions if isinstance(each, Create))
    stamp = create.body["metadata"]["annotations"]["ray.io/cronjob-scheduled-timestamp"]
    assert stamp == "2026-01-01T13:45:00Z"


@pytest.mark.acceptance("rayjob", 136)
def test_forbid_lets_a_run_wait_for_the_earlier_job() -> None:
    forbid = {"raybus.io/concurrency-policy": "Forbid"}
    found = _plan("00:05:30", _job("old", "Running"), annotations=forbid)
    assert (_created(found), _deleted(found)) == ([], [])
    assert _events(found) == [
        (
            "JobAlreadyActive",
            "The run of 2026-01-01T00:05:00Z waits, because RayJob old has not ended and "
            "raybus.io/concurrency-policy is Forbid",
        )
    ]
    assert found.requeue_at == _at("00:10:00")
    for ended in ("Complete", "Failed", "ValidationFailed"):
        assert len(_created(_plan("00:05:30", _job("old", ended), annotations=forbid))) == 1


def test_runs_overlap_without_a_policy() -> None:
    found = _plan("00:05:30", _job("old", "Running"))
    assert (len(_created(found)), _deleted(found)) == (1, [])


def test_replace_deletes_the_earlier_job_before_it_creates_the_new_one() -> None:
    replace = {"raybus.io/concurrency-policy": "Replace"}
    found = _plan("00:05:30", _job("old", "Running"), _job("done", "Complete"), annotations=replace)
    assert [type(each) for each in found.actions] == [Delete, Create, UpdateStatus]
    assert _deleted(found) == ["old"]


@pytest.mark.acceptance("rayjob", 136)
def test_ended_jobs_above_the_limits_are_deleted_the_oldest_first() -> None:
    jobs = (
        *(_job(f"ok-{n}", "Complete", f"00:0{n}:00") for n in (3, 1, 2)),
        *(_job(f"bad-{n}", "Failed", f"00:0{n}:00") for n in (2, 1)),
        _job("running", "Running"),
    )
    limits = {
        "raybus.io/successful-jobs-history-limit": "1",
        "raybus.io/failed-jobs-history-limit": "0",
    }
    assert _deleted(_plan("00:04:00", *jobs, annotations=limits)) == [
        *("ok-1", "ok-2", "bad-1", "bad-2"),
    ]
    assert _deleted(_plan("00:04:00", *jobs)) == []
    assert _deleted(_plan("00:04:00", *jobs, annotations=limits, suspend=True)) == [
        *("ok-1", "ok-2", "bad-1", "bad-2"),
    ]


def test_ended_jobs_are_deleted_before_a_run_that_a_quota_may_refuse() -> None:
    limit = {"raybus.io/successful-jobs-history-limit": "0"}
    found = _plan("00:05:30", _job("ok", "Complete"), annotations=limit)
    assert [type(action) for action in found.actions] == [Delete, Create, UpdateStatus]


def test_a_job_that_is_being_deleted_is_not_deleted_again() -> None:
    limits = {"raybus.io/successful-jobs-history-limit": "0"}
    ending = _job("ok", "Complete", deletionTimestamp=CREATED)
    assert _deleted(_plan("00:04:00", ending, annotations=limits)) == []


def test_a_run_beyond_the_starting_deadline_is_skipped() -> None:
    deadline = {"raybus.io/starting-deadline": "60"}
    assert len(_created(_plan("00:06:00", annotations=deadline))) == 1
    found = _plan("00:06:01", annotations=deadline)
    assert _created(found) == []
    assert _events(found) == [
        (
            "MissSchedule",
            "The run of 2026-01-01T00:05:00Z is more than 0:01:00 late and is skipped",
        )
    ]
    assert found.requeue_at == _at("00:10:00")


def test_jobs_get_the_labels_that_the_annotation_lists() -> None:
    found = _plan(
        "00:05:30",
        annotations={
            "raybus.io/job-labels": "kueue.x-k8s.io/queue-name=users, ray.io/cronjob-name=x"
        },
    )
    (create,) = (each for each in found.actions if isinstance(each, Create))
    assert create.body["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "users",
        "ray.io/cronjob-name": "nightly",
    }


@pytest.mark.parametrize(
    ("annotation", "value", "rule"),
    [
        ("concurrency-policy", "forbid", "must be one of Allow, Forbid, Replace, not 'forbid'"),
        ("starting-deadline", "soon", "must be a duration above 0, such as 10m, not 'soon'"),
        ("starting-deadline", "0", "must be a duration above 0, such as 10m, not '0'"),
        (
            "successful-jobs-history-limit",
            "-1",
            "must be a whole number from 0 to 10000, not '-1'",
        ),
        (
            "failed-jobs-history-limit",
            "9" * 99,
            f"must be a whole number from 0 to 10000, not '{'9' * 60}…'",
        ),
        (
            "job-labels",
            "a b=c",
            "must have the form key=value,key=value with valid labels, not 'a b=c'",
        ),
        (
            "job-labels",
            "key",
            "must have the form key=value,key=value with valid labels, not 'key'",
        ),
    ],
)
def test_an_annotation_without_a_meaning_starts_nothing(
    annotation: str, value: str, rule: str
) -> None:
    found = _plan("00:05:30", annotations={f"raybus.io/{annotation}": value})
    ((reason, note),) = _events(found)
    assert reason == "InvalidRayCronJobSpec"
    assert note == f"ml/nightly: annotation raybus.io/{annotation} {rule}"
    assert _created(found) == []


def test_a_last_schedule_time_in_the_future_is_reported() -> None:
    found = _plan("00:05:30", last="2030-01-01T00:00:00Z")
    assert found.requeue_at == _at("00:10:00")
    assert _created(found) == []
    ((reason, note),) = _events(found)
    assert reason == "MissSchedule"
    assert "recorded for 2030-01-01T00:00:00Z, which is in the future" in note


def test_a_clock_that_is_some_seconds_late_is_not_reported() -> None:
    found = _plan("00:04:58", last="2026-01-01T00:05:00Z")
    assert (found.actions, found.requeue_at) == ((), _at("00:05:00"))
    found = _plan("00:05:01", last="2026-01-01T00:05:00Z")
    assert (found.actions, found.requeue_at) == ((), _at("00:10:00"))


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
@pytest.mark.parametrize("status", ["Running", "Complete"])
def test_a_run_that_has_started_is_recorded_and_neither_replaced_nor_repeated(
    policy: str, status: str
) -> None:
    (name,) = _created(_plan("00:05:01"))
    annotations = {
        "raybus.io/concurrency-policy": policy,
        "raybus.io/starting-deadline": "60",
        "raybus.io/successful-jobs-history-limit": "0",
    }
    found = _plan("00:09:00", _job(name, status), annotations=annotations)
    (record, *deletions) = found.actions
    assert isinstance(record, UpdateStatus)
    assert record.status == ray_cron_job.RayCronJobStatus(last_schedule_time=_at("00:05:00"))
    assert len(deletions) == (status == "Complete")
    assert found.requeue_at == _at("00:10:00")
