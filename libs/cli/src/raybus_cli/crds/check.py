"""What happens to a cluster's objects if its CRDs are replaced by those of this version.

A removed field is dropped whenever its object is written. If a field changes its type, becomes
required or gets a new rule, the API server refuses the next write of each object that does not
comply.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from common import errors
from common.api.opaque import Json
from common.kube.client import Kube
from common.kube.resources import Resource
from common.version import VERSION
from crd_generator import comparison, manifest
from crd_generator.comparison import ChangeKind, FieldChange
from crd_generator.schema import Schema
from raybus_cli.doctor.survey import CRD

MAX_NAMED: Final = 3
"""Maximum number of objects or new fields that a line of the output names."""
REMEDIES: Final = {
    ChangeKind.REMOVED: "save the values of a removed field, which the next write drops",
    ChangeKind.TYPE: "change the value to the new type",
    ChangeKind.REQUIRED: "set the field that is now required",
    ChangeKind.RULE: "change the value so that the new rule accepts it",
}
"""What a user should do about each kind of change before the CRDs are replaced."""


class ChangedField(msgspec.Struct, frozen=True, kw_only=True):
    """A field that is removed or changed, and the objects that the change concerns."""

    path: str
    kind: ChangeKind
    text: str
    objects: list[str] | None
    """`NAMESPACE/NAME` of the objects; None if they may not be read."""

    @property
    def is_harmless(self) -> bool:
        """Whether the change concerns no object."""
        return self.objects == []


class DefinitionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The difference between an installed CRD and that of this version."""

    name: str
    is_installed: bool
    new_fields: list[str] = []
    changes: list[ChangedField] = []
    lost_versions: list[str] = []
    """Versions that the new CRD lacks, although stored objects use them."""

    @property
    def is_harmless(self) -> bool:
        """Whether the CRD can be applied without an effect on any object."""
        return not self.lost_versions and all(change.is_harmless for change in self.changes)


async def check(kube: Kube) -> list[DefinitionReport]:
    """Compare the CRDs of a cluster with those of this version.

    Raises `Forbidden` if the CRDs may not be read.
    """
    return [
        await _check_one(kube, definition) for definition in manifest.list_definitions().values()
    ]


async def _check_one(kube: Kube, wanted: Schema) -> DefinitionReport:
    name: str = wanted["metadata"]["name"]
    try:
        installed: Json = msgspec.json.decode(await kube.get(CRD, None, name))
    except errors.NotFound:
        return DefinitionReport(name=name, is_installed=False)
    changes = comparison.compare(installed, wanted)
    breaking = [change for change in changes if change.kind is not ChangeKind.ADDED]
    objects = await _list_objects(kube, wanted) if breaking else []
    return DefinitionReport(
        name=name,
        is_installed=True,
        new_fields=sorted(change.path for change in changes if change.kind is ChangeKind.ADDED),
        changes=[describe_change(change, objects) for change in breaking],
        lost_versions=comparison.find_lost_versions(installed, wanted),
    )


async def _list_objects(kube: Kube, definition: Schema) -> list[Json] | None:
    """Return all objects of a CRD; None if the caller may not list them."""
    spec = definition["spec"]
    version = next(entry["name"] for entry in spec["versions"] if entry["storage"])
    resource = Resource(
        group=spec["group"],
        version=version,
        kind=spec["names"]["kind"],
        plural=spec["names"]["plural"],
    )
    try:
        answer: Json = msgspec.json.decode(await kube.list(resource, None))
    except errors.Forbidden:
        return None
    objects: list[Json] = answer["items"]
    return objects


def describe_change(
    change: FieldChange, objects: Sequence[Mapping[str, Any]] | None
) -> ChangedField:
    """Return a change with the objects that it concerns.

    `objects` are all objects of the CRD; None if the caller may not list them.
    """
    concerns = comparison.is_missing if change.kind is ChangeKind.REQUIRED else comparison.is_set
    return ChangedField(
        path=change.path,
        kind=change.kind,
        text=change.text or str(change.kind),
        objects=None
        if objects is None
        else [
            f"{document['metadata']['namespace']}/{document['metadata']['name']}"
            for document in objects
            if concerns(document, change.path)
        ],
    )


def format_lines(reports: Sequence[DefinitionReport]) -> Iterator[str]:
    """Yield a line for each CRD, and one for each removed or changed field."""
    for report in reports:
        yield f"{report.name}: {_summarize(report)}"
        for version in report.lost_versions:
            yield f"  × version {version}: removed, but objects are stored in it"
        for change in report.changes:
            mark = "√" if change.is_harmless else "×"
            yield f"  {mark} {change.path}: {change.text}; {_describe_objects(change)}"


def format_remedy(reports: Sequence[DefinitionReport]) -> str | None:
    """Return what to do before the CRDs are replaced; None if no object is concerned."""
    if all(report.is_harmless for report in reports):
        return None
    changes = [change for report in reports for change in report.changes if not change.is_harmless]
    steps = [
        text for kind, text in REMEDIES.items() if any(kind is change.kind for change in changes)
    ]
    if any(report.lost_versions for report in reports):
        steps.append("store the objects in a version that stays")
    if any(change.objects is None for change in changes):
        steps.append("repeat the check as a user who may list the objects")
    return (
        "Nothing was changed. Keep the CRDs of the cluster for now, with which raybus "
        f"{VERSION} works, too. In the objects with ×: {'; '.join(steps)}. Then check again."
    )


def _summarize(report: DefinitionReport) -> str:
    if not report.is_installed:
        return "not installed"
    parts = [
        *([f"{len(report.changes)} removed or changed"] if report.changes else []),
        *(
            [f"{len(report.new_fields)} new ({_name_some(report.new_fields)})"]
            if report.new_fields
            else []
        ),
    ]
    return ", ".join(parts) or f"has the fields of raybus {VERSION}"


def _describe_objects(change: ChangedField) -> str:
    if change.objects is None:
        return "you may not list the objects"
    if not change.objects:
        return "concerns no object"
    return f"concerns {len(change.objects)} object(s): {_name_some(change.objects)}"


def _name_some(names: Sequence[str]) -> str:
    more = ", …" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"
