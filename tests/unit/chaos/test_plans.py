"""Faults and users are the same for the same seed, and their requests make sense."""

from collections import Counter
from itertools import pairwise

from chaos import schedule
from chaos.ray_jobs import CRON_JOBS, MODES, RayJobs
from chaos.schedule import DASHBOARD_KINDS, KINDS
from chaos.users import CLUSTERS, SERVICES, Users

MINUTES = 30 * 60.0


def test_a_seed_gives_the_same_faults_again() -> None:
    assert schedule.plan(7, MINUTES, most=4) == schedule.plan(7, MINUTES, most=4)
    assert schedule.plan(7, MINUTES, most=4) != schedule.plan(8, MINUTES, most=4)


def test_every_kind_strikes_before_any_strikes_again() -> None:
    found = [each.kind for each in schedule.plan(1, MINUTES, most=4) if not each.replicas]
    assert Counter(found[: len(KINDS)]) == Counter(kind.name for kind in KINDS)


def test_five_minutes_are_enough_for_every_kind_but_a_few() -> None:
    found = {each.kind for each in schedule.plan(1, 300.0, most=4)}
    assert len(found) >= len(KINDS) - 2


def test_one_fault_at_a_time() -> None:
    found = schedule.plan(1, MINUTES, most=4)
    assert all(
        one.over <= other.at and one.at + one.lasts < one.over for one, other in pairwise(found)
    )


def test_replicas_go_from_one_to_four_to_two() -> None:
    found = schedule.plan(1, MINUTES, most=4)
    assert [each.replicas for each in found if each.replicas] == [4, 2]
    assert not any(each.replicas for each in schedule.plan(1, MINUTES, most=1))


def test_a_seed_gives_the_same_users_again() -> None:
    one, other = (list(Users(7).requests(600)) for _ in range(2))
    assert one == other
    assert one != list(Users(8).requests(600))


def test_users_change_only_what_is_there() -> None:
    alive: set[tuple[str, str]] = set()
    for each in Users(3).requests(600):
        key = (each.resource.kind, each.name)
        if each.body is not None:
            assert key not in alive
            alive.add(key)
        else:
            assert key in alive
        if each.what == "delete":
            alive.remove(key)
        kinds = Counter(kind for kind, _ in alive)
        assert kinds["RayCluster"] <= CLUSTERS
        assert kinds["RayService"] <= SERVICES


def test_users_do_everything() -> None:
    done = {(each.resource.kind, each.what.split(" ")[0]) for each in Users(3).requests(600)}
    assert done == {
        *(
            ("RayCluster", what)
            for what in ("create", "scale", "edit", "suspend", "resume", "autoscale", "delete")
        ),
        *(("RayService", what) for what in ("create", "upgrade", "roll", "configure", "delete")),
    }


def test_a_seed_gives_the_same_jobs_again() -> None:
    one, other = (RayJobs(7, 200).requests(600) for _ in range(2))
    assert one == other
    assert one != RayJobs(8, 200).requests(600)


def test_jobs_are_of_every_kind() -> None:
    requests = RayJobs(1, 200).requests(600)
    created = [each for each in requests if each.what == "create"]
    jobs = [each.body["spec"] for each in created if each.resource.kind == "RayJob" and each.body]
    assert len(jobs) == 200
    assert len(created) - len(jobs) == CRON_JOBS
    assert {spec["submissionMode"] for spec in jobs} == set(MODES)
    assert {spec["backoffLimit"] for spec in jobs} == {0, 1, 2}
    assert any("activeDeadlineSeconds" in spec for spec in jobs)
    done = Counter(each.what for each in requests if each.resource.kind == "RayJob")
    assert set(done) == {"create", "suspend", "resume", "delete"}
    assert [each.at for each in requests] == sorted(each.at for each in requests)


def test_no_jobs_are_asked_for() -> None:
    assert RayJobs(1, 0).requests(600) == []


def test_dashboards_fail_in_every_way_within_a_minute() -> None:
    found = schedule.plan_dashboards(1, 60.0)
    assert {each.kind for each in found} == {each.name for each in DASHBOARD_KINDS}
    assert all(one.over <= other.at for one, other in pairwise(found))
