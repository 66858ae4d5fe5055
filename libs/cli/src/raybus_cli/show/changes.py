"""Watches collections of the API server for a view of them: an idle cluster costs no request, and a change is there at once."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from common import errors
from common.api.meta import ObjectMeta
from common.kube.client import KubeClient
from common.kube.watch import Key, Sink, Target, Timing, Watch
from raybus_cli import printing, session
from raybus_cli.reading.snapshot import Regarding

STARTUP_SECONDS: Final = 60.0
"""Seconds for which a restarted API server may serve neither kinds nor rights."""
T = TypeVar("T")


class _Head(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    regarding: Regarding = Regarding()


class Store(Generic[T]):
    """The objects of one watched kind; implements `common.kube.watch.Sink`."""

    def __init__(self, view: type[T], changed: asyncio.Event) -> None:
        self.is_listed = False
        self._view = view
        self._changed = changed
        self._objects: dict[Key, T] = {}

    @property
    def objects(self) -> Iterable[T]:
        """Return all of them."""
        return self._objects.values()

    def present(self, raw: bytes, why: str = "") -> None:  # noqa: ARG002  (what is left of an object is shown)
        self._objects[_key(raw)] = msgspec.json.decode(raw, type=self._view)
        self._changed.set()

    def gone(self, raw: bytes) -> None:
        self._objects.pop(_key(raw), None)
        self._changed.set()

    def listed(self, keys: set[Key], version: str) -> None:  # noqa: ARG002  (the watch resumes by it)
        self._objects = {key: each for key, each in self._objects.items() if key in keys}
        self.is_listed = True
        self._changed.set()


class Signal:
    """Notes that a watched collection changed, and keeps none of it; implements `common.kube.watch.Sink`."""

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._versions: dict[Key, str] = {}

    def present(self, raw: bytes, why: str = "") -> None:  # noqa: ARG002  (the reader reports it)
        meta = msgspec.json.decode(raw, type=_Head).metadata
        key = (meta.namespace, meta.name)
        if self._versions.get(key) != meta.resource_version:
            self._versions[key] = meta.resource_version
            self._changed.set()

    def gone(self, raw: bytes) -> None:
        self._versions.pop(_key(raw), None)
        self._changed.set()

    def listed(self, keys: set[Key], version: str) -> None:  # noqa: ARG002  (the watch resumes by it)
        if gone := self._versions.keys() - keys:
            self._versions = {key: each for key, each in self._versions.items() if key not in gone}
            self._changed.set()


class EventSignal:
    """Notes new Events about some objects, of all of a namespace; implements `common.kube.watch.Sink`."""

    def __init__(self, changed: asyncio.Event) -> None:
        self.objects: frozenset[tuple[str, str]] = frozenset()
        """Kind and name of the objects."""
        self._changed = changed

    def present(self, raw: bytes, why: str = "") -> None:
        if why:  # an Event that is not shown either
            return
        about = msgspec.json.decode(raw, type=_Head).regarding
        if (about.kind, about.name) in self.objects:
            self._changed.set()

    def gone(self, raw: bytes) -> None:
        """Ignore the expiry of an Event."""

    def listed(self, keys: set[Key], version: str) -> None:
        """Ignore which Events there are: each read lists them."""


class Changes:
    """The watches of a view; they run in a group of tasks, which ends when one of them fails for good."""

    def __init__(
        self,
        kube: KubeClient,
        group: asyncio.TaskGroup,
        meaning: Callable[[errors.RaybusError], errors.RaybusError],
    ) -> None:
        """`meaning` turns the problem of a request into one that the user can remove."""
        self.happened = asyncio.Event()
        """Set by each change; the view clears it before it reads."""
        self._kube = kube
        self._group = group
        self._meaning = meaning
        self._watches: dict[Target, tuple[Watch, asyncio.Task[None]]] = {}
        self._noted: set[Target] = set()
        self._is_away = False
        self._away_until = 0.0

    def watch(self, sinks: Mapping[Target, Sink]) -> None:
        """Watch these collections, and no others any more."""
        for target in self._watches.keys() - sinks.keys():
            self._watches.pop(target)[1].cancel()
        for target in sinks.keys() - self._watches.keys():
            watch = Watch(
                self._kube,
                target,
                sinks[target],
                jitter=random.random,
                timing=Timing(),
                failed=lambda problem, target=target: self._watch_failed(target, problem),
            )
            self._watches[target] = watch, self._group.create_task(watch.run())

    def failed(self, problem: errors.RaybusError) -> None:
        """Report an API server that does not answer, once until it does again; raise what waiting cannot remove."""
        now = asyncio.get_running_loop().time()
        if isinstance(problem, (errors.Unavailable, errors.Throttled)):
            self._away_until = now + STARTUP_SECONDS
            if not self._is_away:
                printing.message(session.line(problem), err=True)
            self._is_away = True
        elif isinstance(problem, session.NoSuchObject) or (
            isinstance(problem, (errors.Terminal, errors.NotFound)) and now > self._away_until
        ):
            raise self._meaning(problem) from problem

    def answered(self) -> None:
        """Note that the API server answers."""
        self._is_away = False

    def _watch_failed(self, target: Target, problem: errors.RaybusError) -> None:
        if all(watch.problem is None for watch, _ in self._watches.values()):
            self._is_away = False
        if not (target.is_optional and isinstance(problem, (errors.Forbidden, errors.NotFound))):
            self.failed(problem)
        elif (
            isinstance(problem, errors.Forbidden)
            and "cannot watch" in str(problem)
            and target not in self._noted
        ):
            self._noted.add(target)
            printing.message(f"changes of {target.resource.plural} show late: {problem}", err=True)


def _key(raw: bytes) -> Key:
    meta: Any = msgspec.json.decode(raw, type=_Head).metadata
    return meta.namespace, meta.name
