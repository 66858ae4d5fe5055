"""Annotations that control an upgrade: the legal values, and the behaviour for illegal ones."""

from datetime import timedelta

import pytest

from common.api import ray_service
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import Controls, OnDeadline
from support.builders.ray_service import a_ray_service
from support.tables import cases

GENERATION = 7


def controls(**annotations: str) -> Controls:
    held = {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    body = a_ray_service(annotations=held)
    body["metadata"]["generation"] = GENERATION
    return upgrade_controls.read_controls(ray_service.decode(body))


def test_without_annotations_a_deadline_of_ten_minutes_is_only_reported() -> None:
    assert controls() == Controls(deadline=timedelta(minutes=10), on_deadline=OnDeadline.WAIT)


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        pytest.param("true", True, id="always"),
        pytest.param(" true ", True, id="blanks do not matter"),
        pytest.param("7", True, id="this generation"),
        pytest.param("007", True, id="this generation with zeros before it"),
        pytest.param("6", False, id="a spec edit made it void"),
        pytest.param("8", False, id="a generation to come"),
        pytest.param("false", False, id="not at all"),
        pytest.param("", False, id="empty"),
    ],
)
@pytest.mark.parametrize("name", ["abort", "promote"])
def test_abort_and_promote_are_for_ever_or_for_one_generation(
    name: str, value: str, *, holds: bool
) -> None:
    expected = Controls(aborts=holds) if name == "abort" else Controls(promotes=holds)
    assert controls(**{name: value}) == expected


@pytest.mark.parametrize(("value", "holds"), [("true", True), ("false", False), ("", False)])
def test_pause_is_on_or_off(value: str, *, holds: bool) -> None:
    assert controls(pause=value) == Controls(pauses=holds)


@pytest.mark.parametrize(
    ("value", "seconds"), [("90", 90), ("1m30s", 90), ("1h", 3600), (" 5m ", 300)]
)
def test_a_deadline_is_a_duration_or_seconds(value: str, seconds: int) -> None:
    assert controls(progress_deadline=value) == Controls(deadline=timedelta(seconds=seconds))


@pytest.mark.parametrize("policy", list(OnDeadline))
def test_the_policies(policy: OnDeadline) -> None:
    assert controls(on_deadline=policy.value) == Controls(on_deadline=policy)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("pause", "yes", 'raybus.io/pause "yes" is not "true" or "false"; it counts as absent'),
        ("pause", "7", 'raybus.io/pause "7" is not "true" or "false"; it counts as absent'),
        (
            "abort",
            "-1",
            'raybus.io/abort "-1" is not "true", "false" or a metadata.generation; it counts as absent',
        ),
        (
            "promote",
            "TRUE",
            'raybus.io/promote "TRUE" is not "true", "false" or a metadata.generation; it counts as absent',
        ),
        (
            "progress_deadline",
            "soon",
            'raybus.io/progress-deadline "soon" is not a positive duration such as 10m or a number of seconds; '
            "10m0s holds",
        ),
        (
            "progress_deadline",
            "0",
            'raybus.io/progress-deadline "0" is not a positive duration such as 10m or a number of seconds; 10m0s holds',
        ),
        (
            "on_deadline",
            "rollback",
            'raybus.io/on-deadline "rollback" is not one of Rollback, Pause, Wait; Wait holds',
        ),
    ],
)
def test_a_value_that_cannot_be_meant_is_named_and_the_default_holds(
    name: str, value: str, problem: str
) -> None:
    assert controls(**{name: value}) == Controls(problems=(problem,))


@pytest.mark.parametrize(("value", "percent"), [("0", 0), ("20", 20), (" 99 ", 99)])
def test_capacity_may_be_missing(value: str, percent: int) -> None:
    assert controls(max_unavailable_percent=value) == Controls(unavailable=percent)


@pytest.mark.parametrize("value", ["100", "-1", "20%", "2.5", "", "٣"])
def test_what_is_no_percentage_is_named(value: str) -> None:
    found = controls(max_unavailable_percent=value)
    problem = (
        f'raybus.io/max-unavailable-percent "{value}" is not a whole number from 0 to 99; 0 holds'
    )
    assert (found.unavailable, found.problems) == (0, (problem,))


@pytest.mark.parametrize(("value", "kept"), [("0", 0), ("3", 3), ("99", 99)])
def test_how_many_specs_are_kept(value: str, kept: int) -> None:
    assert controls(revision_history_limit=value) == Controls(history=kept)


@pytest.mark.parametrize("value", ["100", "-1", "all", ""])
def test_what_is_no_number_of_specs_is_named(value: str) -> None:
    found = controls(revision_history_limit=value)
    problem = (
        f'raybus.io/revision-history-limit "{value}" is not a whole number from 0 to 99; 10 holds'
    )
    assert (found.history, found.problems) == (10, (problem,))


@cases(
    ("options", "expected"),
    {
        "as it stands": ({"intervalSeconds": 30}, timedelta(seconds=30)),
        "below nothing": ({"intervalSeconds": -1}, timedelta(0)),
        "more than any clock has": ({"intervalSeconds": 10**15}, timedelta(seconds=2**31 - 1)),
        "no number": ({"intervalSeconds": "30"}, None),
        "missing": ({}, None),
    },
)
def test_an_interval_is_held_to_what_the_crd_admits(
    options: dict[str, object], expected: timedelta | None
) -> None:
    assert upgrade_controls.interval(options) == expected


@cases(
    ("value", "was_edited", "holds"),
    {
        "for this generation": ("demo-b/50@7", True, True),
        "for a later weight, too": ("demo-b/100@7", True, True),
        "for an earlier weight": ("demo-b/25@7", False, False),
        "for another cluster": ("demo-a/50@7", False, False),
        "for an earlier generation": ("demo-b/50@6", False, False),
        "for a generation to come": ("demo-b/50@8", False, False),
        "for no generation, of a cluster with one config": ("demo-b/50", False, True),
        "for no generation, after an edit": ("demo-b/50", True, False),
    },
)
def test_an_approval_is_for_one_cluster_and_one_spec(
    value: str, *, was_edited: bool, holds: bool
) -> None:
    approved = controls(approved_step=value).approved
    found = approved is not None and approved.holds("demo-b", 50, was_edited=was_edited)
    assert found is holds
    assert controls(approved_step=value).problems == ()


@pytest.mark.parametrize("value", ["demo-b", "demo-b/101@7", "demo-b/5@x", "demo-b/5@7@7", "/5@7"])
def test_an_approval_that_cannot_be_meant_is_named_and_counts_as_absent(value: str) -> None:
    found = controls(approved_step=value)
    assert found.approved is None
    assert found.problems == (
        f'raybus.io/approved-step "{value}" is not <RayCluster>/<weight from 0 to 100>@<metadata.generation>; '
        "it counts as absent",
    )
