"""Makes the outcomes of raybus and KubeRay comparable.

Random values, times and meaningless differences are replaced or left out:

- Generated names of pods and replicas get the round and the pod's position instead of random
  characters.
- Uids, versions, generations and times of written objects, and the values of Secrets, are replaced
  or left out.
- Fields with an empty value are left out unless the empty value has a meaning (`emptyDir: {}`).
- Quantities are written as the API server writes them (`1000m` is `1`).
- Events with the same reason in one round are one Event. raybus's text must be one of KubeRay's,
  apart from pod names.
- The order of writes is ignored.
- Only the hash of a RayCluster's spec is compared, because no operator changes a spec and Go adds
  zero values to it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from common import labels, quantity
from common.api import go_json
from common.api.go_types import CLUSTER_SPEC
from common.api.opaque import Body, Json
from parity.cases import CLUSTER_UID, RoundOutcome
from parity.defaults import defaulted

_RANDOM: Final = re.compile(r"-[a-z0-9]{5}$")
_RENAMED: Final = re.compile(r"(?<![\w-])[\w-]+-(?:gone|r\d{4})(?![\w-])")
_MEANINGFUL: Final = {"emptyDir", "podSelector", "namespaceSelector", "selfSigned"}
"""Fields for which an empty object differs from an absent field."""
_MAPS: Final = {
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
    "rayStartParams",
    "endpoints",
}
"""Fields whose keys users define. Empty values of such keys have a meaning."""
_PERIOD: Final = re.compile(r"after (?:\d+[hm])*[\d.]+s")
_AMOUNTS: Final = {"limits", "requests", "minResources", "minResource"}
_AMOUNT: Final = {"sizeLimit", "desiredCPU", "desiredMemory", "desiredGPU", "desiredTPU", "size"}
_CHOSEN: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "selfLink",
)
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def order(pod: Body, known: frozenset[str]) -> tuple[str, ...]:
    """Return the sort key of a pod.

    Pods with a name in `known` are sorted by name, new pods by type, group and index.
    """
    own, name = pod["metadata"].get("labels", {}), pod["metadata"]["name"]
    indices = ("ray.io/worker-group-replica-index", "ray.io/replica-host-index")
    place = (own.get(labels.NODE_TYPE, ""), own.get(labels.GROUP, ""))
    drawn = own.get(labels.REPLICA_NAME, "") if name not in known else ""
    return (
        *place,
        name if name in known else "~",
        *(own.get(index, "").zfill(4) for index in indices),
        drawn,
        name,
    )


def renamed(outcome: RoundOutcome, known: frozenset[str], *, number: int) -> RoundOutcome:
    """Replace the random names of new pods by names that depend on the pod's position.

    Names in `known`, from earlier rounds, are kept. `number` is the number of the round.
    """
    drawn = _map_random_names(outcome, known, number)
    if not drawn:
        return outcome
    names = "|".join(re.escape(name) for name in sorted(drawn, key=len, reverse=True))
    text = re.sub(
        rf"(?<![\w-])(?:{names})(?![\w-])",
        lambda match: drawn[match[0]],
        msgspec.json.encode(outcome).decode(),
    )
    return msgspec.json.decode(text, type=RoundOutcome)


def comparable(outcome: RoundOutcome) -> Json:
    """Return the outcome of a round, normalized: without everything that varies between runs."""
    pods = {write.split(" ", 2)[2] for write in outcome.writes if " Pod " in write}
    pods |= {body["metadata"]["name"] for body in outcome.objects if body["kind"] == "Pod"}
    notes = dict[str, set[str]]()
    for event in outcome.events:
        note = _PERIOD.sub("after a while", _RENAMED.sub("<a pod>", event["note"]))
        for name in sorted(pods, key=len, reverse=True):
            note = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<a pod>", note)
        notes.setdefault(f"{event['type']} {event['reason']}", set()).add(note)
    return {
        "objects": {
            _get_title(body): pruned(body) for body in map(_normalize_object, outcome.objects)
        },
        "events": {reason: sorted(texts) for reason, texts in sorted(notes.items())},
        "writes": dict(sorted(Counter(outcome.writes).items())),
        "hashes": outcome.hashes,
        "built": {
            name: _normalize_built(name, body)
            for name, body in (outcome.built or {}).items()
            if body
        },
        "panic": outcome.panic.partition("\n")[0],
    }


def _get_title(body: Body) -> str:
    group = body["apiVersion"].rpartition("/")[0]
    return (
        f"{body['kind']}{f'.{group}' if body['kind'] == 'PodGroup' else ''} "
        f"{body['metadata']['name']}"
    )


def _map_random_names(outcome: RoundOutcome, known: frozenset[str], number: int) -> dict[str, str]:
    """Return, for each random name of an outcome, the name that replaces it.

    `known` and `number` are the parameters of `renamed`.
    """
    renames, numbers = dict[str, str](), Counter[str]()
    pods = [body for body in outcome.objects if body["kind"] == "Pod"]
    for pod in sorted(pods, key=lambda body: order(body, known)):
        meta = pod["metadata"]
        own, name = meta.get("labels", {}), meta["name"]
        if name in known or not _RANDOM.search(name):
            continue
        suffix = f"r{number}{numbers[name[:-5]]:03}"
        numbers[name[:-5]] += 1
        renames[name] = name[:-5] + suffix
        if replica := own.get(labels.REPLICA_NAME):
            renames.setdefault(replica, replica[:-5] + suffix)
    for write in outcome.writes:
        verb, kind, name = write.split(" ", 2)
        if kind == "Pod" and verb == "create" and _RANDOM.search(name):
            renames.setdefault(name, f"{name[:-5]}gone")
    return renames


def _normalize_object(body: Body) -> Body:
    meta = {
        field: value
        for field, value in body["metadata"].items()
        if field not in _CHOSEN and field != "generateName"
    }
    owners = [
        {**owner, "uid": owner["uid"] if owner["uid"] == CLUSTER_UID else "UID"}
        for owner in meta.get("ownerReferences", [])
    ]
    kept = _replace_times({**body, "metadata": {**meta, "ownerReferences": owners}})
    match body["kind"]:
        case "RayCluster":
            del kept["spec"]
            kept["status"].pop("observedGeneration", None) if "status" in kept else None
            if conditions := kept.get("status", {}).get("conditions"):
                kept["status"]["conditions"] = {
                    condition.pop("type"): condition for condition in conditions
                }
        case "RayJob":
            kept["spec"] = _drop_zero_values(kept["spec"])
        case "Secret":
            kept["data"] = dict.fromkeys(body.get("data") or body.get("stringData") or {}, "SECRET")
            kept.pop("stringData", None)
        case "Service":
            kept["spec"]["ports"] = sorted(
                kept["spec"].get("ports") or [], key=lambda port: port.get("name", "")
            )
        case _:
            pass
    return kept


def _drop_zero_values(spec: Json) -> Json:
    """Return the spec of a RayJob as Go would write it: zero values are left out.

    The RayCluster's spec is encoded by its Go type.
    """
    kept = {field: value for field, value in spec.items() if value not in (0, False)}
    if "rayClusterSpec" in kept:
        text = go_json.encode(CLUSTER_SPEC, kept["rayClusterSpec"])
        kept["rayClusterSpec"] = msgspec.json.decode(text)
    return kept


def _normalize_built(name: str, value: Any) -> Any:
    """Return one of the parts of `RoundOutcome.built`, normalized for the comparison.

    A text is unchanged; the spec of a RayCluster (`cluster`) has no empty fields; a Service has
    neither an owner nor varying fields.
    """
    if isinstance(value, str):
        return value
    if name == "cluster":
        return pruned(value)
    service = _normalize_object(
        {"apiVersion": "v1", "kind": "Service", **defaulted({"kind": "Service", **value})}
    )
    service["metadata"].pop("ownerReferences", None)
    return pruned(service)


def _replace_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {field: _replace_times(content) for field, content in cast("Json", value).items()}
    if isinstance(value, list):
        return [_replace_times(item) for item in cast("list[Any]", value)]
    return "TIME" if isinstance(value, str) and _MOMENT.fullmatch(value) else value


def pruned(value: Any, field: str = "") -> Any:
    """Remove empty fields, and write quantities in one form.

    `field` is the name of the field that holds `value`.
    """
    if isinstance(value, dict):
        if field in _AMOUNTS:
            return {key: _normalize_amount(content) for key, content in cast("Json", value).items()}
        fields = {key: pruned(content, key) for key, content in cast("Json", value).items()}
        kept = field in _MAPS
        return {
            key: content
            for key, content in fields.items()
            if kept or key in _MEANINGFUL or not _is_empty(key, content)
        }
    if isinstance(value, list):
        return [pruned(item) for item in cast("list[Any]", value)]
    return _normalize_amount(value) if field in _AMOUNT else value


def _is_empty(field: str, value: Any) -> bool:
    if field == "publishNotReadyAddresses":
        return not value
    return value in ({}, [], "", None) or (field in _AMOUNT and value == "0")


def _normalize_amount(value: Any) -> Any:
    try:
        return str(quantity.parse(value)) if isinstance(value, str | int | float) else value
    except ValueError:
        return value


class Difference(msgspec.Struct, frozen=True):
    """A field whose value differs between KubeRay (`theirs`) and raybus (`ours`).

    The value None means that the field is absent.
    """

    place: str
    theirs: Any
    ours: Any

    @property
    def signature(self) -> str:
        """The path of the field (`place`) without names and numbers.

        Differences with the same signature are of one kind.
        """
        place = re.sub(r"<[^>]*>|\b\d+\b", "#", self.place)
        place = re.sub(r"(writes/\w+ [A-Za-z.]+) [^/]*", r"\1", place)
        return re.sub(r"(objects/[A-Za-z.]+) [^/]*", r"\1", place)

    def __str__(self) -> str:
        theirs, ours = _format_clipped(self.theirs), _format_clipped(self.ours)
        return f"{self.place}\n    KubeRay: {theirs}\n    raybus:  {ours}"


def _format_clipped(value: Any) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 600 else f"{text[:600]}…"


def differences(theirs: Any, ours: Any, place: str = "") -> Iterator[Difference]:
    """Yield each field in which two values differ. `place` is the path of the compared values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        one, other = cast("Json", theirs), cast("Json", ours)
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{place}/{key}".lstrip("/"))
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from _compare_lists(cast("list[Any]", theirs), cast("list[Any]", ours), place)
    elif theirs != ours:
        yield Difference(place, theirs, ours)


def _compare_lists(theirs: Sequence[Any], ours: Sequence[Any], place: str) -> Iterator[Difference]:
    if theirs == ours:
        return
    if "events/" in place:
        yield from (Difference(place, theirs, item) for item in ours if item not in theirs)
        return
    one, other = _index_by_name(theirs), _index_by_name(ours)
    if one is None or other is None:
        yield from differences(_index_by_number(theirs), _index_by_number(ours), place)
        return
    yield from differences(one, other, place)
    if [*one] != [*other] and sorted(one) == sorted(other):
        yield Difference(f"{place}/order", [*one], [*other])


def _index_by_number(items: Sequence[Any]) -> Json:
    return {f"{number:02}": item for number, item in enumerate(items)}


def _index_by_name(items: Sequence[Any]) -> Json | None:
    """Return the items of a list by name; None if an item has no name, or a name occurs twice."""
    names = [cast("Json", item).get("name") if isinstance(item, dict) else None for item in items]
    if None in names or len({*names}) < len(names):
        return None
    return {f"{name}": item for name, item in zip(names, items, strict=True)}
