"""Records of Serve configs: a total order, an intent before and an outcome after each send, and a
bounded number of them (ADR 5).
"""

import pytest

from common import errors
from common.api import ray_cluster
from common.api.meta import ObjectMeta
from common.kube.resources import CONTROLLER_REVISION
from common.ray.revision import MAX_UNKNOWN_RECORDS, OUTCOME, RecordedConfig, Revision, SendOutcome
from common.ray.revisions import Revisions
from common.runtime.cache import Cache
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

CLUSTER = ray_cluster.decode({"metadata": {"name": "demo-1", "namespace": "default", "uid": "u1"}})
AGAIN = ray_cluster.decode({"metadata": {"name": "demo-1", "namespace": "default", "uid": "u2"}})


def given(version: str) -> RecordedConfig:
    return RecordedConfig(serve_config=version)


def a_kube() -> FakeKube:
    return FakeKube(now=FakeClock().now)


async def held(kube: FakeKube) -> list[tuple[int, str, str]]:
    """Return number, config and outcome of each record on the API server, newest first."""
    known = await Revisions(kube, Cache()).list_records(CLUSTER)
    return [(each.revision, each.data.serve_config, each.outcome) for each in known]


async def test_an_intent_is_written_before_and_its_outcome_after() -> None:
    kube = a_kube()
    records = Revisions(kube, Cache())
    intent = await records.intend(CLUSTER, given("v1"), after=0)
    assert await held(kube) == [(1, "v1", "sent")]
    await records.conclude(CLUSTER, intent, SendOutcome.ACCEPTED)
    assert await held(kube) == [(1, "v1", "accepted")]


async def test_the_same_config_is_recorded_once() -> None:
    kube = a_kube()
    records = Revisions(kube, Cache())
    intent = await records.intend(CLUSTER, given("v1"), after=0)
    await records.conclude(CLUSTER, intent, SendOutcome.ACCEPTED)
    written = len(kube.writes())
    again = await records.intend(CLUSTER, given("v1"), after=1)
    await records.conclude(CLUSTER, again, SendOutcome.ACCEPTED)
    await records.conclude(CLUSTER, again, SendOutcome.REFUSED)
    assert (len(kube.writes()), await held(kube)) == (written, [(1, "v1", "accepted")])


async def test_of_two_writers_with_the_same_knowledge_one_is_refused() -> None:
    kube = a_kube()
    one, two = Revisions(kube, Cache()), Revisions(kube, Cache())
    await one.list_records(CLUSTER)
    await two.list_records(CLUSTER)
    await one.intend(CLUSTER, given("v2"), after=0)
    with pytest.raises(errors.Conflict, match="has record 1 instead of 0"):
        await two.intend(CLUSTER, given("v3"), after=0)
    assert await held(kube) == [(1, "v2", "sent")]


async def test_of_two_creates_at_the_same_moment_one_is_refused() -> None:
    kube = a_kube()
    one, two = Revisions(kube, Cache()), Revisions(kube, Cache())

    def overtake(request: object) -> errors.RaybusError | None:
        if str(request).startswith("create"):
            kube.faults.clear()
            kube.put(CONTROLLER_REVISION, first.pop())
        return None

    await one.intend(CLUSTER, given("v2"), after=0)
    first = [kube.all(CONTROLLER_REVISION)[0]]
    await kube.delete(CONTROLLER_REVISION, "default", first[0]["metadata"]["name"])
    kube.faults.append(overtake)
    with pytest.raises(errors.AlreadyExists):
        await two.intend(CLUSTER, given("v3"), after=0)
    assert await held(kube) == [(1, "v2", "sent")]


async def test_a_writer_that_the_bus_left_far_behind_makes_no_record_in_a_gap_of_the_numbers() -> (
    None
):
    kube = a_kube()
    late, busy = Revisions(kube, Cache()), Revisions(kube, Cache())
    await late.list_records(CLUSTER)
    for number, version in enumerate("abcdefgh"):
        await busy.conclude(
            CLUSTER, await busy.intend(CLUSTER, given(version), after=number), SendOutcome.ACCEPTED
        )
    with pytest.raises(errors.Conflict):
        await late.intend(CLUSTER, given("old"), after=0)
    assert await held(kube) == [(8, "h", "accepted"), (7, "g", "accepted")]


async def test_a_cluster_that_is_made_again_under_its_name_begins_anew() -> None:
    kube = a_kube()
    await Revisions(kube, Cache()).intend(CLUSTER, given("v1"), after=0)
    assert (await Revisions(kube, Cache()).intend(AGAIN, given("v1"), after=0)).revision == 1
    assert len(kube.all(CONTROLLER_REVISION)) == 2


async def test_the_last_accepted_record_outlives_all_that_are_refused_or_lost() -> None:
    kube = a_kube()
    records = Revisions(kube, Cache())
    await records.conclude(
        CLUSTER, await records.intend(CLUSTER, given("v0"), after=0), SendOutcome.ACCEPTED
    )
    for number in range(1, 30):
        intent = await records.intend(CLUSTER, given(f"v{number}"), after=number)
        if number % 2:
            await records.conclude(CLUSTER, intent, SendOutcome.REFUSED)
    found = await held(kube)
    assert found[-1] == (1, "v0", "accepted")
    assert len(found) <= MAX_UNKNOWN_RECORDS + 3
    last = await records.intend(CLUSTER, given("last"), after=found[0][0])
    await records.conclude(CLUSTER, last, SendOutcome.ACCEPTED)
    assert [each[0] for each in await held(kube)] == [31, 30]


async def test_a_record_of_the_last_release_counts_as_accepted_and_is_followed() -> None:
    kube = a_kube()
    records = Revisions(kube, Cache())
    await records.intend(CLUSTER, given("old"), after=0)
    body = kube.all(CONTROLLER_REVISION)[0]
    await kube.delete(CONTROLLER_REVISION, "default", body["metadata"]["name"])
    meta = {key: body["metadata"][key] for key in ("labels", "ownerReferences")}
    assert OUTCOME not in meta
    kube.put(
        CONTROLLER_REVISION,
        {**body, "metadata": {**meta, "name": "demo-1-serve-0123456789"}, "revision": 3},
    )
    later = Revisions(kube, Cache())
    assert (await later.list_records(CLUSTER))[0].outcome is SendOutcome.ACCEPTED
    assert (await later.intend(CLUSTER, given("new"), after=3)).revision == 4


@pytest.mark.parametrize(
    ("annotations", "outcome"),
    [
        ({}, SendOutcome.ACCEPTED),
        ({OUTCOME: "refused"}, SendOutcome.REFUSED),
        ({OUTCOME: "superseded"}, SendOutcome.SENT),
    ],
)
def test_an_outcome_of_another_build_does_not_count_as_accepted(
    annotations: dict[str, str], outcome: SendOutcome
) -> None:
    assert Revision(metadata=ObjectMeta(annotations=annotations)).outcome is outcome
