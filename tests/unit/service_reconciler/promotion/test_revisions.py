"""The specs that are on record after a sequence of changes."""

import msgspec

from common.api.meta import ObjectMeta
from common.ray import goal_revision
from common.ray.goal_revision import Goal, GoalRevision, HashedGoal
from common.runtime.actions import Create, Delete, Patch
from service_reconciler.promotion import revisions
from support.tables import cases

META = ObjectMeta(name="demo", namespace="default", uid="uid-demo")
KEPT = 10


def a_spec(name: str, serve: str | None = "v1") -> HashedGoal:
    """Return a spec of a cluster that differs from others by one letter."""
    goal = Goal(ray_cluster_config={"rayVersion": name}, serve_config=serve)
    return HashedGoal(goal=goal, hash=goal.spec_hash)


A, B, C, D = (a_spec(each) for each in "ABCD")
A2 = a_spec("A", "v2")


class StoredRecords:
    """Records as an API server would store them."""

    def __init__(self) -> None:
        self.held: dict[str, GoalRevision] = {}
        self.writes = 0

    def want(self, spec: HashedGoal, before: HashedGoal | None = None, *, kept: int = KEPT) -> None:
        """Let a RayService request a spec while another one serves."""
        for each in revisions.decide(META, spec, before, self.found, kept=kept):
            self.writes += 1
            match each:
                case Create(body=body):
                    new = msgspec.convert(body, GoalRevision)
                    assert new.metadata.name not in self.held
                    self.held[new.metadata.name] = new
                case Patch(name=name, patch=patch):
                    self._renew(
                        self.held[name], patch["revision"], patch["metadata"]["annotations"]
                    )
                case Delete(name=name):
                    del self.held[name]

    def _renew(self, have: GoalRevision, number: int, noted: dict[str, str | None]) -> None:
        kept = {name: value for name, value in noted.items() if value is not None}
        meta = msgspec.structs.replace(have.metadata, annotations=kept)
        self.held[have.metadata.name] = GoalRevision(metadata=meta, data=have.data, revision=number)

    @property
    def found(self) -> list[GoalRevision]:
        """Return the stored records, oldest first."""
        return sorted(self.held.values(), key=lambda each: each.revision)

    @property
    def records(self) -> list[str]:
        """Return each record as `<number> <cluster>/<Serve config>`, with the spec that served
        before it.
        """
        numbers = {each.metadata.name: each.revision for each in self.found}
        return [
            f"{each.revision} {each.goal.ray_cluster_config['rayVersion']}/{each.goal.serve_config or '?'}"
            + (f" after {numbers.get(each.replaces, 'none')}" if each.replaces else "")
            for each in self.found
        ]


@cases(
    ("wants", "records"),
    {
        "a first spec": ([(A, None)], ["1 A/v1"]),
        "an upgrade": ([(A, None), (B, A)], ["1 A/v1", "2 B/v1 after 1"]),
        "the same is not recorded twice": (
            [(A, None), (B, A), (B, A)],
            ["1 A/v1", "2 B/v1 after 1"],
        ),
        "there and back": ([(A, None), (B, A), (A, B)], ["2 B/v1 after 3", "3 A/v1 after 2"]),
        "one that never served is not what the next one replaces": (
            [(A, None), (B, A), (C, A)],
            ["1 A/v1", "2 B/v1 after 1", "3 C/v1 after 1"],
        ),
        "what changed in place is recorded when it is replaced": (
            [(A, None), (B, A2)],
            ["1 A/v1", "2 A/v2 after 1", "3 B/v1 after 2"],
        ),
        "a cluster that another operator made": ([(B, A)], ["1 A/v1", "2 B/v1 after 1"]),
        "a cluster that does not report what it serves is known by its spec": (
            [(A, None), (B, a_spec("A", None))],
            ["1 A/v1", "2 B/v1 after 1"],
        ),
        "nobody knows what it serves": ([(B, a_spec("A", None))], ["1 A/?", "2 B/v1 after 1"]),
        "the cluster was deleted and is made anew": ([(A, None), (A, None)], ["1 A/v1"]),
        "changed while the service was suspended": (
            [(A, None), (B, A), (C, None)],
            ["1 A/v1", "2 B/v1 after 1", "3 C/v1 after 2"],
        ),
        "resumed as it was": ([(A, None), (B, A), (B, None)], ["1 A/v1", "2 B/v1 after 1"]),
    },
)
def test_what_is_on_record(
    wants: list[tuple[HashedGoal, HashedGoal | None]], records: list[str]
) -> None:
    stored = StoredRecords()
    for spec, before in wants:
        stored.want(spec, before)
    assert stored.records == records


def test_each_change_of_the_goal_is_one_write() -> None:
    stored, served = StoredRecords(), A
    stored.want(A)
    for number, spec in enumerate((B, C, D, A), start=2):
        stored.want(spec, served)
        stored.want(spec, served)  # until the cluster is there
        served = spec
        assert stored.writes == number


@cases(
    ("kept", "records"),
    {
        "three others": (3, ["1 A/v1", "2 B/v1 after 1", "3 C/v1 after 2", "4 D/v1 after 3"]),
        "two others": (2, ["2 B/v1", "3 C/v1 after 2", "4 D/v1 after 3"]),
        "one other": (1, ["3 C/v1", "4 D/v1 after 3"]),
        "what served before is kept even so": (0, ["3 C/v1", "4 D/v1 after 3"]),
    },
)
def test_the_oldest_go(kept: int, records: list[str]) -> None:
    stored, served = StoredRecords(), None
    for spec in (A, B, C, D):
        stored.want(spec, served, kept=kept)
        served = spec
    assert [line.replace(" after none", "") for line in stored.records] == records


def test_what_serves_is_never_forgotten() -> None:
    stored = StoredRecords()
    stored.want(A)
    for spec in (B, C, D):  # each is replaced by the next
        stored.want(spec, A, kept=1)
    assert stored.records == ["1 A/v1", "4 D/v1 after 1"]


def test_a_record_of_another_service_with_the_same_name_is_another_one() -> None:
    again = msgspec.structs.replace(META, uid="uid-of-another")
    assert goal_revision.name(META, A) != goal_revision.name(again, A)
