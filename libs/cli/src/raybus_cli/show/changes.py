"""Watches collections of the API server for a live view.

A watch shows changes immediately, and sends no requests while nothing changes.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from common import errors
from common.api.meta import ObjectMeta
from common.kube.client import KubeClient
from common.kube.watch import NamespacedName, Watch, WatchSink, WatchTarget, WatchTiming
from raybus_cli import printing, session
from raybus_cli.reading.snapshot import Regarding

STARTUP_SECONDS: Final = 60.0
"""Seconds for which a restarted API server may not yet serve all kinds and rights."""
T = TypeVar("T")


class _Head(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    regarding: Regarding = Regarding()


class ObjectStore(Generic[T]):
    """The objects of a watched kind, kept up to date; implements `common.kube.watch.WatchSink`."""

    def __init__(self, view: type[T], changed: asyncio.Event) -> None:
        self.is_listed = False
        self._view = view
        self._changed = changed
        self._objects: dict[NamespacedName, T] = {}

    @property
    def objects(self) -> Iterable[T]:
        return self._objects.values()

    # An object that was read only in part is shown as far as possible.
    def present(self, raw: bytes, reason: str = "") -> None:  # noqa: ARG002
        self._objects[_read_key(raw)] = msgspec.json.decode(raw, type=self._view)
        self._changed.set()

    def gone(self, raw: bytes) -> None:
        self._objects.pop(_read_key(raw), None)
        self._changed.set()

    # `version` is not needed: the watch itself continues there.
    def listed(self, keys: set[NamespacedName], version: str) -> None:  # noqa: ARG002
        self._objects = {key: obj for key, obj in self._objects.items() if key in keys}
        self.is_listed = True
        self._changed.set()


class Signal:
    """Signals changes of a watched collection; of its objects, only the versions are stored.

    Implements `common.kube.watch.WatchSink`.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._versions: dict[NamespacedName, str] = {}

    def present(self, raw: bytes, reason: str = "") -> None:  # noqa: ARG002  (the reader reports it)
        meta = msgspec.json.decode(raw, type=_Head).metadata
        key = (meta.namespace, meta.name)
        if self._versions.get(key) != meta.resource_version:
            self._versions[key] = meta.resource_version
            self._changed.set()

    def gone(self, raw: bytes) -> None:
        self._versions.pop(_read_key(raw), None)
        self._changed.set()

    # `version` is not needed: the watch itself continues there.
    def listed(self, keys: set[NamespacedName], version: str) -> None:  # noqa: ARG002
        if gone := self._versions.keys() - keys:
            self._versions = {
                key: _version for key, _version in self._versions.items() if key not in gone
            }
            self._changed.set()


class EventSignal:
    """Signals new Events about some objects, among all Events of a namespace.

    Implements `common.kube.watch.WatchSink`.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self.objects: frozenset[tuple[str, str]] = frozenset()
        """The objects whose Events are signalled, as pairs of kind and name."""
        self._changed = changed

    def present(self, raw: bytes, reason: str = "") -> None:
        if reason:  # such an Event is not shown
            return
        about = msgspec.json.decode(raw, type=_Head).regarding
        if (about.kind, about.name) in self.objects:
            self._changed.set()

    def gone(self, raw: bytes) -> None:
        """Do nothing when an Event expires."""

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        """Do nothing after a list of Events, because each refresh of the view reads them itself."""


class ChangeWatcher:
    """The watches of a view. They run in a task group, which ends if a watch fails permanently."""

    def __init__(
        self,
        kube: KubeClient,
        group: asyncio.TaskGroup,
        meaning: Callable[[errors.RaybusError], errors.RaybusError],
    ) -> None:
        """Start with no watches.

        `meaning` converts the error of a request into an error that names what the user can
        correct.
        """
        self.happened = asyncio.Event()
        """Set by each change; the view clears it before each read."""
        self._kube = kube
        self._group = group
        self._meaning = meaning
        self._watches: dict[WatchTarget, tuple[Watch, asyncio.Task[None]]] = {}
        self._noted: set[WatchTarget] = set()
        self._is_away = False
        self._away_until = 0.0

    def watch(self, sinks: Mapping[WatchTarget, WatchSink]) -> None:
        """Watch exactly the collections in `sinks`: start missing watches and stop all others."""
        for target in self._watches.keys() - sinks.keys():
            self._watches.pop(target)[1].cancel()
        for target in sinks.keys() - self._watches.keys():
            watch = Watch(
                self._kube,
                target,
                sinks[target],
                jitter=random.random,
                timing=WatchTiming(),
                failed=lambda problem, target=target: self._watch_failed(target, problem),
            )
            self._watches[target] = watch, self._group.create_task(watch.run())

    def report_failure(self, problem: errors.RaybusError) -> None:
        """Print, once per outage, that the API server does not answer.

        Raise any other error unless it may pass with time.
        """
        now = asyncio.get_running_loop().time()
        if isinstance(problem, session.RETRYABLE_ERRORS):
            self._away_until = now + STARTUP_SECONDS
            if not self._is_away:
                printing.print_message(session.format_error(problem), err=True)
            self._is_away = True
        elif isinstance(problem, session.NoSuchObject) or (
            isinstance(problem, (errors.Terminal, errors.NotFound)) and now > self._away_until
        ):
            raise self._meaning(problem) from problem

    def record_answer(self) -> None:
        """Record that the API server answers, so that the next outage is reported again."""
        self._is_away = False

    def _watch_failed(self, target: WatchTarget, problem: errors.RaybusError) -> None:
        if all(watch.problem is None for watch, _ in self._watches.values()):
            self._is_away = False
        if not (target.is_optional and isinstance(problem, (errors.Forbidden, errors.NotFound))):
            self.report_failure(problem)
        elif (
            isinstance(problem, errors.Forbidden)
            and "cannot watch" in str(problem)
            and target not in self._noted
        ):
            self._noted.add(target)
            printing.print_message(
                f"changes of {target.resource.plural} show late: {problem}", err=True
            )


def _read_key(raw: bytes) -> NamespacedName:
    meta: Any = msgspec.json.decode(raw, type=_Head).metadata
    return meta.namespace, meta.name
