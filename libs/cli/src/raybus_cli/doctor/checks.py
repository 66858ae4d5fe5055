"""The checks of an installation: one line for each, with the remedy of a failed one."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, cast

import msgspec

from common import labels
from common.api.opaque import Json
from common.bus.sharding import PARTITIONS
from common.runtime import ownership
from common.version import VERSION
from crd_generator import definitions
from nats_admin import certificates
from raybus_cli.doctor.facts import Facts, Workload

SERVICES: Final = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager")
RECONCILERS: Final = SERVICES[1:]
LEADER: Final = "ray-operator-leader"
OLDEST: Final = (1, 27)
"""The oldest minor version of Kubernetes that raybus is tried with."""
SOON: Final = timedelta(days=30)
STALE: Final = timedelta(seconds=60)
"""A Lease that was not renewed for so long has no holder, however far clocks are apart."""
INSTALL: Final = "install raybus: 'kubectl apply -k deploy/overlays/production'; is --raybus-namespace right?"


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The caller may not read it."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check."""

    name: str
    state: CheckState
    text: str
    remedy: str = ""


def all_of(facts: Facts, *, now: datetime) -> list[Check]:
    """Return all checks."""
    return [
        _server(facts),
        *_definitions(facts),
        *_services(facts),
        _nats(facts),
        _leader(facts, now=now),
        *_partitions(facts, now=now),
        _certificate(facts, now=now),
        _gateways(facts),
        _kuberay(facts),
        *_rights(facts),
    ]


def _server(facts: Facts) -> Check:
    name, text = "Kubernetes", facts.server_version
    parts = text.removeprefix("v").split(".")
    if len(parts) < len(OLDEST) or not all(part.isdigit() for part in parts[: len(OLDEST)]):
        return Check(name=name, state=CheckState.UNKNOWN, text=f"version {text or 'unknown'}")
    if (int(parts[0]), int(parts[1])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Check(
            name=name, state=CheckState.WARNING, text=f"{text} is older than {wanted}", remedy="upgrade the cluster"
        )
    return Check(name=name, state=CheckState.OK, text=text)


def _definitions(facts: Facts) -> Iterator[Check]:
    ours = {each["metadata"]["name"]: each for each in definitions.all_definitions().values()}
    apply = "apply them: 'kubectl apply --server-side -k deploy/crds'"
    for name, want in ours.items():
        title = f"CRD {name}"
        if facts.definitions is None:
            yield Check(name=title, state=CheckState.UNKNOWN, text="you may not read CustomResourceDefinitions")
            continue
        have = facts.definitions.get(name)
        if have is None:
            yield Check(name=title, state=CheckState.FAILED, text="is not installed", remedy=apply)
            continue
        missing = sorted(_fields(want) - _fields(have))
        if missing:
            text = f"lacks {len(missing)} field(s), such as {missing[0]}"
            yield Check(name=title, state=CheckState.WARNING, text=text, remedy=apply)
        else:
            yield Check(name=title, state=CheckState.OK, text="installed, with all fields")


def _fields(definition: Json) -> set[str]:
    """Return the fields of the v1 spec down to worker groups, by path."""
    versions = cast("list[Json]", definition["spec"]["versions"])
    v1 = next((each for each in versions if each["name"] == "v1"), None)
    schema: Json = {} if v1 is None else v1["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
    return set(_paths(schema, "spec", depth=4))


def _paths(schema: Json, path: str, *, depth: int) -> Iterator[str]:
    yield path
    inner: Json = cast("Json", schema.get("items") or schema).get("properties") or {}
    if depth and not path.endswith("template"):
        for name, each in inner.items():
            yield from _paths(cast("Json", each), f"{path}.{name}", depth=depth - 1)


def _services(facts: Facts) -> Iterator[Check]:
    if facts.deployments is None:
        yield Check(
            name="services", state=CheckState.UNKNOWN, text=f"you may not read Deployments in {facts.namespace}"
        )
        return
    held = {each.metadata.name: each for each in facts.deployments}
    for name in SERVICES:
        found = held.get(name)
        if found is None:
            text = f"there is no Deployment {name} in namespace {facts.namespace}"
            yield Check(name=name, state=CheckState.FAILED, text=text, remedy=INSTALL)
        else:
            yield _workload(found, name, facts.namespace)


def _workload(found: Workload, name: str, namespace: str) -> Check:
    ready, wanted = found.status.ready_replicas, found.spec.replicas
    image = _image(found.spec.template)
    tag = image.rpartition(":")[2]
    text = f"{ready} of {wanted} ready, {image}"
    if wanted == 0:
        remedy = f"'kubectl -n {namespace} scale deployment {name} --replicas 1'"
        return Check(name=name, state=CheckState.FAILED, text="is scaled to 0", remedy=remedy)
    if ready == 0:
        remedy = f"see 'kubectl -n {namespace} describe pod -l app.kubernetes.io/name={name}' and its logs"
        return Check(name=name, state=CheckState.FAILED, text=text, remedy=remedy)
    if ready < wanted:
        remedy = f"see 'kubectl -n {namespace} get pods -l app.kubernetes.io/name={name}'"
        return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
    if tag.removeprefix("v")[:1].isdigit() and tag.removeprefix("v") != VERSION and name in SERVICES:
        text = f"{text}; this command line is {VERSION}"
        return Check(name=name, state=CheckState.WARNING, text=text, remedy="use the command line of that version")
    return Check(name=name, state=CheckState.OK, text=text)


def _image(template: Json) -> str:
    spec: Json = template.get("spec") or {}
    containers = cast("list[Json]", spec.get("containers") or [{}])
    return str(containers[0].get("image", ""))


def _nats(facts: Facts) -> Check:
    if facts.stateful_sets is None:
        return Check(name="nats", state=CheckState.UNKNOWN, text=f"you may not read StatefulSets in {facts.namespace}")
    found = next((each for each in facts.stateful_sets if each.metadata.name == "nats"), None)
    if found is None:
        text = f"there is no StatefulSet nats in namespace {facts.namespace}; raybus may use another NATS"
        return Check(name="nats", state=CheckState.WARNING, text=text, remedy="see RAYBUS_NATS_URL of the services")
    return _workload(found, "nats", facts.namespace)


def _leader(facts: Facts, *, now: datetime) -> Check:
    if facts.leases is None:
        return Check(name="leader", state=CheckState.UNKNOWN, text=f"you may not read Leases in {facts.namespace}")
    found = next((each for each in facts.leases if each.metadata.name == LEADER), None)
    remedy = f"see 'kubectl -n {facts.namespace} logs deploy/watcher'"
    if found is None or not found.spec.holder_identity:
        return Check(name="leader", state=CheckState.FAILED, text=f"the Lease {LEADER} has no holder", remedy=remedy)
    renewed = found.spec.renew_time
    if renewed is None or now - renewed > STALE:
        text = f"{found.spec.holder_identity} has not renewed the Lease {LEADER} since {renewed or 'ever'}"
        return Check(name="leader", state=CheckState.FAILED, text=text, remedy=remedy)
    return Check(name="leader", state=CheckState.OK, text=f"{found.spec.holder_identity} publishes the state")


def _partitions(facts: Facts, *, now: datetime) -> Iterator[Check]:
    for service in RECONCILERS if facts.leases is not None else ():
        held: list[int] = []
        replicas = 0
        for lease in facts.leases or []:
            renewed = lease.spec.renew_time
            is_alive = renewed is not None and now - renewed <= STALE
            if lease.metadata.labels.get(labels.REPLICA_OF) == service and is_alive:
                held += ownership.parse(lease.metadata.annotations.get(labels.PARTITIONS, "")) or ()
                replicas += 1
        name = f"partitions of {service}"
        twice, missing = len(held) - len(set(held)), PARTITIONS - len(set(held))
        remedy = f"see 'kubectl -n {facts.namespace} logs deploy/{service}'; a hand-over takes some seconds"
        text = f"{len(set(held))} of {PARTITIONS} held by {replicas} replica(s)"
        if twice:
            yield Check(name=name, state=CheckState.FAILED, text=f"{text}; {twice} held twice", remedy=remedy)
        elif missing:
            yield Check(name=name, state=CheckState.FAILED, text=text, remedy=remedy)
        else:
            yield Check(name=name, state=CheckState.OK, text=text)


def _certificate(facts: Facts, *, now: datetime) -> Check:
    name, remedy = "NATS certificate", "see 'kubectl logs nats-0 -c keeper', and docs/nats.md"
    if not facts.certificates:
        text = "you may not read ConfigMap nats-servers, or it holds none"
        return Check(name=name, state=CheckState.UNKNOWN, text=text)
    try:
        end = min(certificates.end_of(each) for each in facts.certificates)
    except ValueError:
        return Check(name=name, state=CheckState.FAILED, text="cannot be read", remedy=remedy)
    text = f"good until {end:%Y-%m-%d}"
    if end <= now:
        return Check(name=name, state=CheckState.FAILED, text=f"ended on {end:%Y-%m-%d}", remedy=remedy)
    if end - now < SOON:
        return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
    return Check(name=name, state=CheckState.OK, text=text)


def _gateways(facts: Facts) -> Check:
    name, needed = "Gateway API", ", ".join(sorted(facts.asked_classes))
    if facts.gateway_versions is None:
        return Check(name=name, state=CheckState.UNKNOWN, text="the API server does not list its groups")
    if not facts.gateway_versions:
        text = "is not installed; upgrades in steps need it"
        state = CheckState.FAILED if needed else CheckState.WARNING
        return Check(
            name=name, state=state, text=text, remedy="install it and a controller for it, such as Envoy Gateway"
        )
    accepted = {
        each.metadata.name
        for each in facts.gateway_classes or []
        if any((condition.type, condition.status) == ("Accepted", "True") for condition in each.status.conditions)
    }
    missing = sorted(facts.asked_classes - accepted)
    if missing and facts.gateway_classes is not None:
        text = f"no controller has accepted GatewayClass {missing[0]}, which a RayService names"
        return Check(name=name, state=CheckState.FAILED, text=text, remedy="install a controller that serves it")
    served = f"{', '.join(facts.gateway_versions)}; accepted classes: {', '.join(sorted(accepted)) or 'none'}"
    return Check(name=name, state=CheckState.OK, text=served)


def _kuberay(facts: Facts) -> Check:
    if facts.kuberay is None:
        return Check(name="KubeRay", state=CheckState.UNKNOWN, text="you may not read Deployments of all namespaces")
    if facts.kuberay:
        text = f"runs in {', '.join(facts.kuberay)}"
        remedy = (
            "two operators on the same objects overwrite each other unless they share the leader Lease: scale one to 0"
        )
        return Check(name="KubeRay", state=CheckState.WARNING, text=text, remedy=remedy)
    return Check(name="KubeRay", state=CheckState.OK, text="does not run beside raybus")


def _rights(facts: Facts) -> Iterator[Check]:
    """Yield one check for each subject: the missing rights, or that there are none."""
    for subject in dict.fromkeys(each.subject for each in facts.rights):
        own = [each for each in facts.rights if each.subject == subject]
        name = "your rights" if subject == "you" else f"rights of {subject}"
        lacking = [f"{each.verb} {each.resource}" for each in own if each.is_allowed is False]
        if lacking:
            remedy = "request them" if subject == "you" else "apply the Roles and bindings of deploy/ again"
            yield Check(name=name, state=CheckState.FAILED, text=f"lacking: {', '.join(lacking)}", remedy=remedy)
        elif any(each.is_allowed is None for each in own):
            yield Check(name=name, state=CheckState.UNKNOWN, text="you may not ask for them")
        else:
            yield Check(name=name, state=CheckState.OK, text=f"{len(own)} of {len(own)} granted")
