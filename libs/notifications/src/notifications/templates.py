"""The texts of notifications: templates, their fields, and escaping of text from outside (no I/O).

The fields of a template are the fields of the event's `data` as in docs/events, with underscores
instead of dots (`$upgrade_from`, `$receipt_seconds_draining`), and those in `FIELDS_OF_ALL`.
"""

from collections.abc import Callable, Iterator, Mapping
from string import Template
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from common import errors, event_catalogue
from common.bus.cloud_events import CloudEvent, EventData, EventSource
from common.untrusted import clipped

FIELDS_OF_ALL: Final = frozenset({"namespace", "name", "kind", "time", "id"})
OTHER: Final = "other"
"""Name of the template for kinds of events that this release does not know."""
MAX_LENGTH: Final = 500
"""Maximum characters of one field. Fields can contain long texts of applications and Kubernetes."""
UNKNOWN: Final = "unknown"
_NO_WIDTH: Final = "\u200b"

DEFAULTS: Final[Mapping[str, str]] = {
    "started": (
        "$namespace/$name: upgrade from $upgrade_from to $upgrade_to started ($reason, $strategy)"
    ),
    "cluster-created": "$namespace/$name: RayCluster $cluster created",
    "capacity-changed": (
        "$namespace/$name: capacity ($direction): $upgrade_from $after_from_capacityPercent %, "
        "$upgrade_to $after_to_capacityPercent %"
    ),
    "traffic-shifted": (
        "$namespace/$name: traffic ($direction): $upgrade_from $after_from_trafficPercent %, "
        "$upgrade_to $after_to_trafficPercent %"
    ),
    "gate-evaluated": "$namespace/$name: $outcome at $trafficPercent % of the traffic: $message",
    "paused": "$namespace/$name: upgrade to $upgrade_to paused ($reason): $message",
    "resumed": "$namespace/$name: upgrade to $upgrade_to resumed",
    "stalled": "$namespace/$name: upgrade to $upgrade_to stalled ($reason): $message",
    "promoted": "$namespace/$name: $upgrade_to promoted, it serves all requests",
    "drain-started": (
        "$namespace/$name: $cluster gets no new requests and completes its requests in flight"
    ),
    "completed": (
        "$namespace/$name: upgrade from $upgrade_from to $upgrade_to completed "
        "($receipt_outcome), requests cut: $receipt_requestsCut"
    ),
    "aborted": "$namespace/$name: upgrade to $upgrade_to aborted ($reason): $message",
    "rolled-back": (
        "$namespace/$name: rolled back ($outcome): $upgrade_from serves all requests, "
        "$upgrade_to is deleted"
    ),
    "failed": "$namespace/$name: $upgrade_to failed ($reason): $message",
    "job-submitted": (
        "$namespace/$name: attempt $attempt_number of $maxAttempts begins on $attempt_cluster"
    ),
    "job-running": "$namespace/$name: the job runs on $attempt_cluster",
    "job-succeeded": "$namespace/$name: the job has succeeded after $durationSeconds s",
    "job-stopped": "$namespace/$name: the job was stopped after $durationSeconds s",
    "job-failed": (
        "$namespace/$name: the job has failed in attempt $attempt_number ($reason, exit code "
        "$exitCode) $message"
    ),
    "job-retried": (
        "$namespace/$name: attempt $attempt_number has failed ($reason, exit code $exitCode), "
        "another one follows"
    ),
    "job-suspended": "$namespace/$name: the job is suspended",
    "job-deleted": "$namespace/$name: the job is deleted ($state)",
    OTHER: "$namespace/$name: $kind",
}
"""The default templates by kind of event. They have no markup, so they suit every receiver."""


def check_templates(templates: Mapping[str, str]) -> dict[str, Template]:
    """Return a template for every kind of event: the one from `templates`, or else the default.

    Raises:
        InvalidSpec: A kind or a field does not exist, or a template does not parse. The text names
            the kind and the field.
    """
    for kind, text in templates.items():
        if kind not in DEFAULTS:
            raise errors.InvalidSpec(
                f"templates.{kind}: there is no such kind; kinds are {', '.join(DEFAULTS)}"
            )
        template = Template(text)
        if not template.is_valid():
            raise errors.InvalidSpec(
                f"templates.{kind}: a $ stands before no name of a field; write $$ for a $"
            )
        known_fields = list_fields(kind)
        if unknown := [name for name in template.get_identifiers() if name not in known_fields]:
            raise errors.InvalidSpec(
                f"templates.{kind}: there is no field ${unknown[0]}; fields of {kind} are "
                f"{', '.join(sorted(known_fields))}"
            )
    return {kind: Template(text) for kind, text in (DEFAULTS | dict(templates)).items()}


def list_fields(kind: str) -> frozenset[str]:
    """Return the fields that a template for this kind of event may use."""
    known = event_catalogue.KINDS.get(kind)
    families = event_catalogue.FAMILIES
    structs = [family.base for family in families] if known is None else [known]
    return FIELDS_OF_ALL.union(*(_list_paths(inspect.type_info(struct)) for struct in structs))


def render(
    templates: Mapping[str, Template],
    event: CloudEvent[EventData],
    source: EventSource,
    *,
    escape: Callable[[str], str],
) -> str:
    """Return the text for an event.

    `source` is the RayService or RayJob; `escape` makes each field safe for the receiver.
    """
    kind = event_catalogue.kind_of(event.type)
    time = event.time.isoformat(timespec="seconds").replace("+00:00", "Z")
    values = {
        "namespace": source.namespace,
        "name": source.name,
        "kind": kind,
        "time": time,
        "id": event.id,
    }
    values |= _flatten(msgspec.to_builtins(event.data))
    template = templates.get(kind, templates[OTHER])
    # A field that this event does not have (kind of a later release) stays visible as $field.
    return template.safe_substitute(
        {name: escape(_format_line(value)) for name, value in values.items()}
    )


def strip_markup(text: str) -> str:
    """Return a text without markup for Slack-compatible receivers (Slack, Mattermost, Discord).

    The result cannot mention anybody (`@channel`, `<!here>`) or hide the target of a link
    (`<url|x>`, `[x](url)`): a zero-width space is inserted after each `@` and within `](`.
    """
    bare = text.replace("@", f"@{_NO_WIDTH}").replace("](", f"]{_NO_WIDTH}(")
    return bare.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _format_line(text: str) -> str:
    """Return a text on one line, shortened to at most `MAX_LENGTH` characters."""
    return clipped(" ".join(text.split()), MAX_LENGTH)


def _list_paths(node: inspect.Type, path: str = "") -> Iterator[str]:
    if isinstance(node, inspect.Metadata):
        yield from _list_paths(node.type, path)
    elif isinstance(node, inspect.StructType):
        for field in node.fields:
            yield from _list_paths(
                field.type, f"{path}_{field.encode_name}" if path else field.encode_name
            )
    else:
        yield path


def _flatten(value: Any, path: str = "") -> dict[str, str]:
    match value:
        case dict():
            values: dict[str, str] = {}
            for name, part in cast("dict[str, Any]", value).items():
                values |= _flatten(part, f"{path}_{name}" if path else name)
            return values
        case bool():
            return {path: str(value).lower()}
        case None:
            return {path: UNKNOWN}
        case _:
            return {path: str(value)}
