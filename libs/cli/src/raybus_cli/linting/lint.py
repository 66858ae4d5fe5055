"""All findings about a manifest document; no request is sent to a cluster.

The document is checked against the schema of the generated CRDs, then by the rules of the services
and of Serve. An unknown field is an error, because the API server would drop it silently; the error
suggests the most similar known name. Valid manifests get advice about settings that cost
availability, money or time.
"""

import difflib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
import re2

from common import labels, pod_json
from common.api import ray_cluster, ray_cron_job, ray_job, ray_service
from common.api.gateway import HttpRoute
from common.api.opaque import Json
from common.feature_gates import Gates
from common.kube.resources import HTTP_ROUTE
from common.ray import ports, serve_config, serve_proxies, serve_writer
from common.ray.serve_status import Location
from common.upgrade import controls as upgrade_controls
from common.upgrade import weighted_route
from common.upgrade.controls import Policy
from common.validation import ray_cluster as cluster_rules
from common.validation import ray_job as job_rules
from crd_generator import definitions
from raybus_cli.linting import serve_schema
from raybus_cli.linting.serve_schema import LintFinding, LintLevel
from raybus_cli.manifests import FieldPath, ManifestDocument, format_path
from raybus_cli.planning import policies, steps
from raybus_cli.reading import cron_schedule, observing

_FILES: Final = {
    "RayCluster": "ray.io_rayclusters.yaml",
    "RayService": "ray.io_rayservices.yaml",
    "RayJob": "ray.io_rayjobs.yaml",
    "RayCronJob": "ray.io_raycronjobs.yaml",
}
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_TYPE_NAMES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_COLLECTION_NAMES: Final = {"object": "a mapping", "array": "a list"}
OPAQUE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"

Problem = tuple[FieldPath, str]


def find_schema_problems(kind: str, body: Json) -> list[Problem]:
    """Return the schema violations in the spec of an object (`body`), field by field."""
    return list(_check(body.get("spec"), _load_schema(kind), ("spec",)))


@lru_cache(maxsize=4)
def _load_schema(kind: str) -> Json:
    versions = cast("list[Json]", definitions.all_definitions()[_FILES[kind]]["spec"]["versions"])
    v1 = next(version for version in versions if version["name"] == "v1")
    return v1["schema"]["openAPIV3Schema"]["properties"]["spec"]


def _check(value: object, schema: Json, path: FieldPath) -> Iterator[Problem]:
    if schema.get(INT_OR_STRING):
        if not isinstance(value, int | str | float) or isinstance(value, bool):
            yield path, "must be a number or a text"
        return
    kind = str(schema.get("type", ""))
    if value is None:
        if not schema.get("nullable") and "default" not in schema and len(path) == 1:
            yield path, "is missing"
        return
    if kind and not _is_a(value, kind):
        yield (
            path,
            f"must be {_TYPE_NAMES.get(kind) or _COLLECTION_NAMES.get(kind, kind)}, not "
            f"{serve_schema.format_value(value)}",
        )
        return
    yield from _check_limits(value, schema, path)
    if isinstance(value, dict):
        yield from _check_mapping(cast("Json", value), schema, path)
    elif isinstance(value, list):
        items: Json = schema.get("items") or {}
        for at, item in enumerate(cast("list[object]", value)):
            yield from _check(item, items, (*path, at))


def _check_mapping(value: Json, schema: Json, path: FieldPath) -> Iterator[Problem]:
    properties = cast("dict[str, Json]", schema.get("properties") or {})
    extra = schema.get("additionalProperties")
    for key in cast("list[str]", schema.get("required") or []):
        if value.get(key) is None and "default" not in properties.get(key, {}):
            yield (*path, key), "is required"
    for key, item in value.items():
        if key in properties:
            yield from _check(item, properties[key], (*path, key))
        elif isinstance(extra, dict):
            yield from _check(item, cast("Json", extra), (*path, key))
        elif properties and not schema.get(OPAQUE):
            near = difflib.get_close_matches(key, properties, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield (*path, key), f"unknown field{hint}"


def _check_limits(value: object, schema: Json, path: FieldPath) -> Iterator[Problem]:
    allowed = cast("list[Any]", schema.get("enum") or [])
    if allowed and value not in allowed:
        yield path, f"{serve_schema.format_value(value)} is none of {', '.join(map(str, allowed))}"
    least = schema.get("minimum")
    if isinstance(least, int) and isinstance(value, int) and value < least:
        yield path, f"must be at least {least}"


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))


_PATH: Final = re2.compile(r"[Ss]pec(?:\.[A-Za-z][A-Za-z0-9]*)+")
_FIELD: Final = re2.compile(r"\b[a-z]+(?:[A-Z][A-Za-z0-9]*)+\b")
"""Matches a camelCase field name of at least two parts."""


def find_rule_problems(document: ManifestDocument, gates: Gates) -> list[Problem]:
    """Return violations of raybus's own rules, which the CRDs do not contain.

    The services stop at the first violation, so each group of rules reports at most one.
    """
    body: Json = {**document.body, "spec": document.body.get("spec") or {}}
    checks = {
        ray_service.KIND: _check_service,
        ray_job.KIND: _check_job,
        ray_cron_job.KIND: _check_cron_job,
    }
    texts = checks.get(document.kind, _check_cluster)(body, gates)
    return [(_find_place(document, text), text) for text in texts]


def find_route_problems(
    document: ManifestDocument, beside: Sequence[ManifestDocument]
) -> Iterator[Problem]:
    """Yield why raybus would refuse the HTTPRoute that a RayService names; nothing if it would not.

    The route is checked only if it is among the documents `beside`.
    """
    if document.kind != ray_service.KIND:
        return
    service = ray_service.decode({**document.body, "spec": document.body.get("spec") or {}})
    if not weighted_route.is_users(service):
        return
    name = weighted_route.name_of(service)
    for other in beside:
        if (
            other.kind == HTTP_ROUTE.kind
            and other.name == name
            and other.namespace == document.namespace
        ):
            route = msgspec.json.decode(msgspec.json.encode(other.body), type=HttpRoute)
            if (why := weighted_route.refusal(service, route)) is not None:
                yield (
                    ("metadata", "annotations", labels.HTTP_ROUTE),
                    f"HTTPRoute {name} {why.message}",
                )


def _check_service(body: Json, gates: Gates) -> Iterator[str]:
    service = ray_service.decode(body)
    if (violation := observing.find_violation(service, gates)) is not None:
        yield violation
    text = service.raw_spec.get("serveConfigV2")
    if isinstance(text, str) and (wrong := serve_config.parse(text).problem) is not None:
        yield wrong
    yield from upgrade_controls.read_controls(service).problems


def _check_job(body: Json, gates: Gates) -> Iterator[str]:
    job = ray_job.decode(body)
    yield from filter(None, (job_rules.metadata(job.metadata), job_rules.spec(job, gates)))


def _check_cron_job(body: Json, gates: Gates) -> Iterator[str]:
    if violation := cron_schedule.forecast(ray_cron_job.decode(body), gates).violation:
        yield violation


def _check_cluster(body: Json, gates: Gates) -> Iterator[str]:
    cluster = ray_cluster.decode(body)
    try:
        rules = (
            cluster_rules.metadata(cluster),
            cluster_rules.spec(cluster, gates),
            cluster_rules.upgrade_options(cluster),
        )
    except msgspec.ValidationError as problem:
        rules = (str(problem),)
    yield from (rule for rule in rules if rule is not None)


def _find_place(document: ManifestDocument, text: str) -> FieldPath:
    """Return the path of the field that a message (`text`) is about.

    This is the first of: an annotation that the message names, a path that starts with `spec`, the
    first field name in the message, and `spec`.
    """
    annotations: Json = cast("Json", document.body.get("metadata") or {}).get("annotations") or {}
    for name in annotations:
        if name in text:
            return ("metadata", "annotations", name)
    for mention in _PATH.findall(text):
        path = tuple(part[:1].lower() + part[1:] for part in str(mention).split("."))
        while len(path) > 1:
            if path in document.lines:
                return path
            path = path[:-1]
    for field in _FIELD.findall(text):
        places = [candidate for candidate in document.lines if candidate and candidate[-1] == field]
        if places:
            return max(
                places,
                key=lambda candidate: (
                    _is_in_named_group(document, candidate, text),
                    -len(candidate),
                ),
            )
    return ("spec",)


def _is_in_named_group(document: ManifestDocument, path: FieldPath, text: str) -> bool:
    """Return whether a field belongs to a worker group that a message (`text`) names."""
    value: object = document.body
    for part in path:
        value = cast("Any", value)[part]
        name = cast("Json", value).get("groupName") if isinstance(value, dict) else None
        if name is not None and f" {name} " in f" {text} ":
            return True
    return False


_VERSION: Final = re2.compile(r"\d+\.\d+(\.\d+)?")
LONG: Final = timedelta(hours=2)


def advise(document: ManifestDocument) -> list[Problem]:
    """Return advice about a valid manifest."""
    spec: Json = document.body.get("spec") or {}
    if document.kind == ray_job.KIND:
        own: Json | None = spec.get("rayClusterSpec")
        return list(_advise_on_cluster(own, ("spec", "rayClusterSpec"))) if own else []
    if document.kind == ray_cron_job.KIND:
        template: Json = spec.get("jobTemplate") or {}
        cluster: Json | None = template.get("rayClusterSpec")
        path = ("spec", "jobTemplate", "rayClusterSpec")
        return list(_advise_on_cluster(cluster, path)) if cluster else []
    if document.kind != ray_service.KIND:
        return list(_advise_on_cluster(spec, ("spec",)))
    config: Json = spec.get("rayClusterConfig") or {}
    return [
        *_advise_on_cluster(config, ("spec", "rayClusterConfig")),
        *_advise_on_service(spec, config),
    ]


def _advise_on_service(spec: Json, config: Json) -> Iterator[Problem]:
    head = ("spec", "rayClusterConfig", "headGroupSpec")
    if not ports.of_serve(config) and "serveService" not in spec:
        yield (
            (*head, "template", "spec", "containers"),
            "no port named serve: clients could not reach the applications",
        )
    if not str(spec.get("serveConfigV2") or "").strip():
        yield ("spec", "serveConfigV2"), "is empty: there is nothing to serve"
    group: Json = config.get("headGroupSpec") or {}
    params: Json = group.get("rayStartParams") or {}
    if config.get("workerGroupSpecs") and str(params.get("num-cpus", "")) != "0":
        yield (
            (*head, "rayStartParams"),
            'num-cpus: "0" would keep replicas off the head, which then survives their load',
        )
    if not config.get("gcsFaultToleranceOptions"):
        text = (
            "without gcsFaultToleranceOptions a lost head pod takes the applications down until "
            "it is back"
        )
        yield ("spec", "rayClusterConfig"), text
    if spec.get("rayClusterDeletionDelaySeconds") == 0:
        text = "0 leaves no time for a rollback: 'raybus undo' needs the old cluster"
        yield ("spec", "rayClusterDeletionDelaySeconds"), text
    yield from _advise_on_proxies(spec, config)
    yield from _advise_on_steps(spec)


def _advise_on_proxies(spec: Json, config: Json) -> Iterator[Problem]:
    """Yield advice if the proxy settings of the Serve config keep requests from reaching pods."""
    text, path = str(spec.get("serveConfigV2") or ""), ("spec", "serveConfigV2", "proxy_location")
    if serve_config.is_empty(text) or serve_config.parse(text).problem is not None:
        return
    proxies = serve_proxies.asked(serve_config.parse(text).to_json())
    for below, why in serve_proxies.mismatches(proxies, config):
        yield ("spec", "rayClusterConfig", *below, "template", "spec", "containers", 0), why
    match proxies.location:
        case Location.DISABLED:
            yield path, "Disabled: no pod takes requests, so the RayService never becomes Ready"
        case Location.HEAD_ONLY if spec.get("excludeHeadPodFromServeSvc"):
            yield path, str(serve_proxies.unreachable(proxies, config, excludes_head=True))
        case Location.HEAD_ONLY if config.get("workerGroupSpecs"):
            why = "the head takes all requests, and workers have no proxy, so they are never Ready"
            yield path, f"HeadOnly: {why}"
        case _:
            pass


def _advise_on_steps(spec: Json) -> Iterator[Problem]:
    strategy: Json = spec.get("upgradeStrategy") or {}
    options: Json = strategy.get("clusterUpgradeOptions") or {}
    if strategy.get("type") != serve_writer.INCREMENTAL:
        return
    surge, step, interval = (
        options.get("maxSurgePercent", 100),
        options.get("stepSizePercent"),
        options.get("intervalSeconds"),
    )
    path = ("spec", "upgradeStrategy", "clusterUpgradeOptions")
    if (
        not isinstance(surge, int)
        or not isinstance(step, int)
        or not isinstance(interval, int)
        or step <= 0
    ):
        return
    rollout = steps.simulate(Policy(surge=surge, step=step, interval=timedelta(seconds=interval)))
    if not rollout.is_finished:
        yield path, f"with maxSurgePercent {surge} no upgrade ever ends"
        return
    if surge % step:
        text = (
            f"{surge} is no multiple of stepSizePercent {step}: {len(rollout.weights)} moves, "
            "some smaller than a step"
        )
        yield (*path, "maxSurgePercent"), text
    if rollout.length >= LONG:
        took = policies.format_duration(rollout.length.total_seconds())
        yield (
            (*path, "intervalSeconds"),
            f"an upgrade moves its traffic for {took}; 'raybus plan' tries other values",
        )


def _advise_on_cluster(config: Json, path: FieldPath) -> Iterator[Problem]:
    version = str(config.get("rayVersion") or "")
    yield from (((*path, "rayVersion"), text) for text in cluster_rules.old_version(version))
    for group, below in _list_groups(config, path):
        template = pod_json.body(group, "template")
        containers = pod_json.bodies(pod_json.body(template, "spec"), "containers")
        at = (*below, "template", "spec", "containers", 0)
        if containers:
            yield from _advise_on_container(containers[0], version, at)
        yield from _scale_advice(group, below)


def _advise_on_container(container: Json, version: str, path: FieldPath) -> Iterator[Problem]:
    image = str(container.get("image") or "")
    tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""
    if image and "@" not in image and tag in {"", "latest"}:
        yield (*path, "image"), f"{image} may be another image tomorrow: use a version"
    tagged = _VERSION.match(tag)
    if tagged is not None and version and not _is_same(tagged.group(), version):
        yield (
            (*path, "image"),
            f"the image is Ray {tagged.group()} by its tag, but rayVersion is {version}",
        )
    resources = pod_json.body(container, "resources")
    if not resources.get("requests") and not resources.get("limits"):
        text = (
            "no resources: Ray counts all CPUs of the node as its own, and scheduler and "
            "autoscaler cannot correct that"
        )
        yield (*path, "resources"), text


def _scale_advice(group: Json, path: FieldPath) -> Iterator[Problem]:
    replicas, least, most = (group.get(key) for key in ("replicas", "minReplicas", "maxReplicas"))
    if isinstance(replicas, int) and isinstance(least, int) and replicas < least:
        yield (
            (*path, "replicas"),
            f"{replicas} is less than minReplicas {least}, which takes precedence",
        )
    if isinstance(replicas, int) and isinstance(most, int) and replicas > most:
        yield (
            (*path, "replicas"),
            f"{replicas} is more than maxReplicas {most}, which takes precedence",
        )


def _list_groups(config: Json, path: FieldPath) -> Iterator[tuple[Json, FieldPath]]:
    head = config.get("headGroupSpec")
    if isinstance(head, dict):
        yield cast("Json", head), (*path, "headGroupSpec")
    workers = config.get("workerGroupSpecs")
    for at, group in enumerate(cast("list[object]", workers) if isinstance(workers, list) else []):
        if isinstance(group, dict):
            yield cast("Json", group), (*path, "workerGroupSpecs", at)


def _is_same(tag: str, version: str) -> bool:
    both = min(tag.count("."), version.count(".")) + 1
    return tag.split(".")[:both] == version.split(".")[:both]


KINDS: Final = ("RayService", "RayCluster", "RayJob", "RayCronJob")
API_VERSION: Final = "ray.io/v1"


def lint(
    document: ManifestDocument, gates: Gates, *, beside: Sequence[ManifestDocument] = ()
) -> list[LintFinding]:
    """Return the findings about a document, sorted by line; empty if its kind is not in `KINDS`.

    `beside` are the other documents, among which the HTTPRoute of a RayService is looked up.
    """
    if document.kind not in KINDS:
        return []
    errors = [(path, "occurs twice; only the last value counts") for path in document.repeated]
    version = document.body.get("apiVersion")
    if version != API_VERSION:
        errors.append((("apiVersion",), f"{version} should be {API_VERSION}"))
    wrong = find_schema_problems(document.kind, document.body)
    errors += wrong or [
        *find_rule_problems(document, gates),
        *find_route_problems(document, beside),
    ]
    findings = [_build_finding(document, LintLevel.ERROR, path, text) for path, text in errors]
    if not wrong and document.kind == KINDS[0]:
        text = str(document.body["spec"].get("serveConfigV2") or "")
        path = ("spec", "serveConfigV2")
        findings += [
            _build_finding(document, level, (*path, *below), why)
            for level, below, why in serve_schema.check_config(text)
        ]
    if not wrong:
        findings += [
            _build_finding(document, LintLevel.ADVICE, path, text)
            for path, text in advise(document)
        ]
    return sorted(findings, key=lambda finding: finding.line)


def _build_finding(
    document: ManifestDocument, level: LintLevel, path: FieldPath, text: str
) -> LintFinding:
    return LintFinding(
        file=document.file,
        line=document.find_line(path),
        level=level,
        field=format_path(path),
        text=text,
    )
