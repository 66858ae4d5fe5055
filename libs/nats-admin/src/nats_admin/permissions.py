"""The permissions of each NATS user to publish and to subscribe.

Each row of `USERS` gives one user the least rights that it needs. Three facts about NATS determine
the rows. The server enforces a consumer's filter only if the filter is part of the subject of the
request that creates the consumer. Each user needs its own inbox, or else it could read another
user's answers. A push consumer delivers to any subject that its creator names, unchecked; so all
users outside of raybus's services are in a different account, with a mirror of the events.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from common.bus import subjects
from common.bus.subjects import TreeKind
from nats_admin.event_streams import MIRROR_API, MIRROR_DELIVER
from nats_admin.subscribers import NamedSubscriber

API: Final = "$JS.API"
RAY: Final = "RAY"
OUTSIDE: Final = "OUTSIDE"
STATE: Final = subjects.STATE_STREAM
EVENTS: Final = subjects.EVENTS_STREAM


class NatsUser(msgspec.Struct, frozen=True, kw_only=True):
    """A NATS user: its account, and the subjects that it may publish to and subscribe to."""

    name: str
    account: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


FOLLOW_STATE: Final = f"{API}.CONSUMER.CREATE.{STATE}.*"
FLOW: Final = f"$JS.FC.{STATE}.>"
READ_STATE: Final = (f"{FOLLOW_STATE}.{subjects.ALL_STATE}", FLOW)
READ_SERVICES, READ_JOBS = (
    (f"{FOLLOW_STATE}.{subjects.build_partition_filter('*', tree)}", FLOW)
    for tree in (TreeKind.SERVICE, TreeKind.JOB)
)
"""Subjects for reading only the state of RayServices, or only that of RayJobs and RayCronJobs."""
MAKE_STATE: Final = (f"{API}.STREAM.INFO.{STATE}", f"{API}.STREAM.CREATE.{STATE}")
MAKE_EVENTS: Final = (f"{API}.STREAM.INFO.{EVENTS}", f"{API}.STREAM.CREATE.{EVENTS}")
MAKE_CONSUMERS: Final = (f"{API}.CONSUMER.INFO.{EVENTS}.*", f"{API}.CONSUMER.CREATE.{EVENTS}.*")
"""Subjects for creating the consumers from which named subscribers read."""
PUBLISH_EVENTS: Final = (subjects.ALL_EVENTS,)


def _list_recovery_subjects(stream: str) -> tuple[str, ...]:
    """Return the API subjects for backing up, deleting and restoring a stream."""
    verbs = ("INFO", "DELETE", "SNAPSHOT", "RESTORE")
    return (*(f"{API}.STREAM.{verb}.{stream}" for verb in verbs), f"$JS.SNAPSHOT.*.{stream}.*")


READ_STREAMS: Final = (f"{API}.INFO", f"{API}.STREAM.NAMES", f"{API}.STREAM.LIST")


def _build_user(name: str, account: str, *publish: str, receives: tuple[str, ...] = ()) -> NatsUser:
    """Return a user that may publish to `publish` and receive `receives` and its own answers."""
    return NatsUser(
        name=name, account=account, publish=publish, subscribe=(f"_INBOX_{name}.>", *receives)
    )


def _build_sharded_user(name: str, *publish: str) -> NatsUser:
    """Return the user of a service with several replicas.

    Besides `publish`, it may publish and receive hints that a replica changed its Lease.
    """
    hints = subjects.build_hint_subject(name)
    return _build_user(name, RAY, *publish, hints, receives=(hints,))


USERS: Final = (
    _build_user(
        "watcher",
        RAY,
        subjects.ALL_STATE,
        f"{API}.STREAM.INFO.{STATE}",
        f"{API}.STREAM.PURGE.{STATE}",
        f"{API}.DIRECT.GET.{STATE}.>",
        *READ_STATE,
    ),
    _build_sharded_user("cluster-reconciler", *READ_STATE),
    _build_sharded_user("service-reconciler", *READ_SERVICES, *PUBLISH_EVENTS),
    _build_sharded_user("traffic-manager", *READ_SERVICES),
    _build_sharded_user("job-reconciler", *READ_JOBS, *PUBLISH_EVENTS),
    _build_user("keeper", RAY, *MAKE_STATE, *MAKE_EVENTS, receives=(subjects.RECOVERY,)),
    _build_user(
        "provisioner",
        RAY,
        *MAKE_STATE,
        f"{API}.STREAM.UPDATE.{STATE}",
        *MAKE_EVENTS,
        f"{API}.STREAM.UPDATE.{EVENTS}",
    ),
    _build_user(
        "keeper-outside", OUTSIDE, *MAKE_EVENTS, *MAKE_CONSUMERS, receives=(subjects.RECOVERY,)
    ),
    _build_user(
        "provisioner-outside",
        OUTSIDE,
        *MAKE_EVENTS,
        f"{API}.STREAM.UPDATE.{EVENTS}",
        *MAKE_CONSUMERS,
    ),
    # For work by hand in an emergency: no process of raybus has the keys of administrators.
    _build_user(
        "administrator",
        RAY,
        *READ_STREAMS,
        *_list_recovery_subjects(STATE),
        *_list_recovery_subjects(EVENTS),
        subjects.RECOVERY,
        receives=("_INBOX.>",),
    ),
    _build_user(
        "administrator-outside",
        OUTSIDE,
        *READ_STREAMS,
        *_list_recovery_subjects(EVENTS),
        f"{API}.CONSUMER.NAMES.{EVENTS}",
        f"{API}.CONSUMER.LIST.{EVENTS}",
        f"{API}.CONSUMER.INFO.{EVENTS}.*",
        f"{API}.CONSUMER.DELETE.{EVENTS}.*",
        subjects.RECOVERY,
    ),
    _build_user(
        "subscriber",
        OUTSIDE,
        f"{API}.INFO",
        f"{API}.STREAM.INFO.{EVENTS}",
        f"{API}.STREAM.NAMES",
        f"{API}.STREAM.LIST",
        f"{API}.STREAM.MSG.GET.{EVENTS}",
        f"{API}.DIRECT.GET.{EVENTS}",
        f"{API}.DIRECT.GET.{EVENTS}.>",
        f"{API}.CONSUMER.CREATE.{EVENTS}",
        f"{API}.CONSUMER.CREATE.{EVENTS}.>",
        f"{API}.CONSUMER.MSG.NEXT.{EVENTS}.*",
        f"{API}.CONSUMER.INFO.{EVENTS}.*",
        f"{API}.CONSUMER.DELETE.{EVENTS}.*",
        f"$JS.ACK.{EVENTS}.>",
        f"$JS.FC.{EVENTS}.>",
        receives=("_INBOX.>", subjects.ALL_EVENTS),
    ),
)


def list_users(subscribers: Iterable[NamedSubscriber]) -> tuple[NatsUser, ...]:
    """Return the users in `USERS` and the users of the named subscribers.

    A named subscriber may read the consumer that was created for it, and may not create others.
    """
    return (*USERS, *(_build_subscriber(subscriber) for subscriber in subscribers))


def _build_subscriber(subscriber: NamedSubscriber) -> NatsUser:
    consumer = f"{EVENTS}.{subscriber.name}"
    rights = (
        f"{API}.CONSUMER.INFO.{consumer}",
        f"{API}.CONSUMER.MSG.NEXT.{consumer}",
        f"$JS.ACK.{consumer}.>",
    )
    return _build_user(subscriber.user, OUTSIDE, *rights)


SERVICES: Final = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)

EXPORTS: Final = (
    f'{{service: "{API}.CONSUMER.CREATE.{EVENTS}", response_type: stream, accounts: [{OUTSIDE}]}}',
    f'{{stream: "{MIRROR_DELIVER}.>", accounts: [{OUTSIDE}]}}',
    f'{{service: "$JS.FC.{EVENTS}.>", accounts: [{OUTSIDE}]}}',
    f'{{stream: "{subjects.ALL_EVENTS}", accounts: [{OUTSIDE}]}}',
)
"""The exports of the services' account: the events, and the API that the mirror needs."""
IMPORTS: Final = (
    f'{{service: {{account: {RAY}, subject: "{API}.CONSUMER.CREATE.{EVENTS}"}}, to: '
    f'"{MIRROR_API}.CONSUMER.CREATE.{EVENTS}"}}',
    f'{{stream: {{account: {RAY}, subject: "{MIRROR_DELIVER}.>"}}}}',
    f'{{service: {{account: {RAY}, subject: "$JS.FC.{EVENTS}.>"}}}}',
    f'{{stream: {{account: {RAY}, subject: "{subjects.ALL_EVENTS}"}}}}',
)
