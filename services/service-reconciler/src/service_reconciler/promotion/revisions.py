"""Decide which spec records of a RayService to create, renew and delete; no I/O.

This happens before a new cluster is created. The new spec becomes the newest record, which refers
to the record of the spec that serves now. The serving spec is recorded too if it has no record: its
Serve config may have been changed in place, or another operator may have created the cluster.
"""

from common.api.meta import ObjectMeta
from common.kube.resources import CONTROLLER_REVISION
from common.ray import goal_revision
from common.ray.goal_revision import GoalRevision, HashedGoal
from common.runtime.actions import Create, Delete, Patch

Record = Create | Patch | Delete


def decide(
    meta: ObjectMeta,
    spec: HashedGoal,
    before: HashedGoal | None,
    goal_revisions: list[GoalRevision],
    *,
    kept: int,
) -> tuple[Record, ...]:
    """Return the writes that record `spec` and `before`, and that delete the oldest records.

    `before` is the spec that serves now. `meta` is the metadata of the RayService, `goal_revisions`
    are the existing records, oldest first, and `kept` is the number of older records that stay.
    """
    wanted, last = goal_revision.name(meta, spec), goal_revisions[-1] if goal_revisions else None
    number = last.revision if last is not None else 0
    made: list[Record] = []
    served = _record_of(meta, before, goal_revisions) if before is not None else last
    replaces = served.metadata.name if served is not None else ""
    if before is not None and served is None:
        number += 1
        replaces = goal_revision.name(meta, before)
        body = goal_revision.build(
            meta, before, number, replaces=last.metadata.name if last is not None else ""
        )
        made.append(Create(resource=CONTROLLER_REVISION, body=body))
    # The same spec is recorded again, for instance after the cluster was deleted by hand.
    if replaces == wanted:
        replaces = served.replaces if served is not None else ""
    have = next((policy for policy in goal_revisions if policy.metadata.name == wanted), None)
    if have is None:
        body = goal_revision.build(meta, spec, number + 1, replaces=replaces)
        made.append(Create(resource=CONTROLLER_REVISION, body=body))
    elif have is not last or made or have.replaces != replaces:
        patch = goal_revision.renewal(have, number + 1, replaces=replaces)
        made.append(Patch(resource=CONTROLLER_REVISION, name=wanted, patch=patch))
    others = [policy for policy in goal_revisions if policy.metadata.name not in {wanted, replaces}]
    room = max(0, kept - bool(replaces))
    gone = (revision.metadata for revision in others[: max(0, len(others) - room)])
    return (
        *made,
        *(
            Delete(resource=CONTROLLER_REVISION, name=action.name, uid=action.uid)
            for action in gone
        ),
    )


def _record_of(
    meta: ObjectMeta, spec: HashedGoal, goal_revisions: list[GoalRevision]
) -> GoalRevision | None:
    """Return the record of a spec; None if there is none.

    If the Serve config of the spec is unknown, this is the newest record with the same cluster
    spec.
    """
    if spec.goal.serve_config is None:
        return next(
            (
                revision
                for revision in reversed(goal_revisions)
                if revision.goal.spec_hash == spec.hash
            ),
            None,
        )
    name = goal_revision.name(meta, spec)
    return next((policy for policy in goal_revisions if policy.metadata.name == name), None)
