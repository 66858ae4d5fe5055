"""The verbs that the page offers for a RayService: those of the command line that have something to act on; pure."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from common import errors
from common.api.ray_service import RayService
from common.upgrade import controls as upgrade_controls
from raybus_cli.control import actions, undo
from raybus_cli.control import history as histories
from raybus_cli.control.actions import Action
from raybus_cli.reading.snapshot import Snapshot

ANNOTATING: Final[Mapping[str, Callable[[RayService], Action]]] = {
    "pause": actions.pause,
    "resume": actions.resume,
    "promote": actions.promote,
    "abort": actions.abort,
    "retry": actions.retry,
}
UNDO: Final = "undo"
VERBS: Final = (*ANNOTATING, UNDO)


class Control(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A verb that has something to act on now."""

    verb: str
    effect: str
    """What happens, as the page asks for its confirmation."""
    command: str
    """What does the same at a terminal."""
    generation: int
    """Of the RayService that this was decided about."""


def available(snapshot: Snapshot, *, now: datetime) -> list[Control]:
    """Return the verbs that have something to act on; none for a RayService of another controller."""
    service = snapshot.service
    try:
        actions.expect_ours(service)
    except errors.Rejected:
        return []
    effects: dict[str, str] = {}
    for verb, decide in ANNOTATING.items():
        if verb == "pause" and upgrade_controls.of(service).pauses:
            continue
        try:
            found = decide(service)
        except errors.Rejected:
            continue
        effects[verb] = f"The upgrade is {found.effect}" + (f": {found.note}." if found.note else ".")
    try:
        entry = undo.choose(histories.build(snapshot, now=now), None, service.metadata.name)
        fields = " and ".join(undo.change(service, entry).fields)
        effects[UNDO] = (
            f"Restores {fields} of revision {entry.number}; a spec that is managed in Git must be changed there too."
        )
    except errors.RaybusError:
        pass
    meta = service.metadata
    return [
        Control(
            verb=verb,
            effect=effect,
            command=f"raybus {verb} {meta.name} -n {meta.namespace}",
            generation=meta.generation,
        )
        for verb, effect in effects.items()
    ]
