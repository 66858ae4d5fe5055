"""The checks of an installation."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, cast

from common import labels
from common.api.opaque import Json
from common.bus.subjects import PARTITIONS
from common.runtime import ownership
from common.version import VERSION
from nats_admin import certificates
from raybus_cli.doctor import check, prerequisites
from raybus_cli.doctor.check import Category, Check, CheckState, Hint
from raybus_cli.doctor.facts import Facts, Workload
from raybus_cli.show import phase as phases
from raybus_cli.show.phase import Tone

SERVICES: Final = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager")
RECONCILERS: Final = SERVICES[1:]
LEADER: Final = "ray-operator-leader"
SOON: Final = timedelta(days=30)
"""Remaining validity below which a certificate leads to a warning."""
STALE: Final = timedelta(seconds=60)
"""Age of the last renewal above which a Lease counts as free.

It is long enough to allow for clocks that differ.
"""
SHOWN: Final = 10
"""Maximum number of faulty RayServices with a check of their own."""
INSTALL: Final = (
    "install raybus: 'kubectl apply -k deploy/overlays/production'; is --raybus-namespace right?"
)


def all_of(facts: Facts, *, now: datetime) -> list[Check]:
    """Return all checks, by category."""
    return [
        *check.of(Category.KUBERNETES, Hint.INSTALL, prerequisites.server(facts)),
        *check.of(Category.KUBERNETES, Hint.FEATURE_GATES, *prerequisites.gates(facts)),
        *check.of(Category.DEFINITIONS, Hint.UPGRADE, *prerequisites.definitions(facts)),
        *check.of(Category.SERVICES, Hint.SERVICES, *_services(facts), _leader(facts, now=now)),
        *check.of(Category.SERVICES, Hint.REPLICAS, *_partitions(facts, now=now)),
        *check.of(Category.NATS, Hint.NATS, _nats(facts)),
        *check.of(Category.NATS, Hint.CERTIFICATES, _certificate(facts, now=now)),
        *check.of(Category.GATEWAY_API, Hint.GATEWAY_API, prerequisites.gateways(facts)),
        *check.of(Category.OPERATORS, Hint.TWO_OPERATORS, prerequisites.kuberay(facts)),
        *check.of(Category.RIGHTS, Hint.RIGHTS, *prerequisites.rights(facts)),
        *check.of(Category.RAY_SERVICES, Hint.RAY_SERVICES, *_ray_services(facts)),
    ]


def _services(facts: Facts) -> Iterator[Check]:
    if facts.deployments is None:
        yield Check(
            name="services",
            state=CheckState.UNKNOWN,
            text=f"you may not read Deployments in {facts.namespace}",
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
        remedy = (
            f"see 'kubectl -n {namespace} describe pod -l app.kubernetes.io/name={name}' and its "
            "logs"
        )
        return Check(name=name, state=CheckState.FAILED, text=text, remedy=remedy)
    if ready < wanted:
        remedy = f"see 'kubectl -n {namespace} get pods -l app.kubernetes.io/name={name}'"
        return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
    if (
        tag.removeprefix("v")[:1].isdigit()
        and tag.removeprefix("v") != VERSION
        and name in SERVICES
    ):
        text = f"{text}; this command line is {VERSION}"
        return Check(
            name=name,
            state=CheckState.WARNING,
            text=text,
            remedy="use the command line of that version",
        )
    return Check(name=name, state=CheckState.OK, text=text)


def _image(template: Json) -> str:
    spec: Json = template.get("spec") or {}
    containers = cast("list[Json]", spec.get("containers") or [{}])
    return str(containers[0].get("image", ""))


def _nats(facts: Facts) -> Check:
    if facts.stateful_sets is None:
        return Check(
            name="nats",
            state=CheckState.UNKNOWN,
            text=f"you may not read StatefulSets in {facts.namespace}",
        )
    found = next((each for each in facts.stateful_sets if each.metadata.name == "nats"), None)
    if found is None:
        text = (
            f"there is no StatefulSet nats in namespace {facts.namespace}; raybus may use "
            "another NATS"
        )
        return Check(
            name="nats",
            state=CheckState.WARNING,
            text=text,
            remedy="see RAYBUS_NATS_URL of the services",
        )
    return _workload(found, "nats", facts.namespace)


def _leader(facts: Facts, *, now: datetime) -> Check:
    if facts.leases is None:
        return Check(
            name="leader",
            state=CheckState.UNKNOWN,
            text=f"you may not read Leases in {facts.namespace}",
        )
    found = next((each for each in facts.leases if each.metadata.name == LEADER), None)
    remedy = f"see 'kubectl -n {facts.namespace} logs deploy/watcher'"
    if found is None or not found.spec.holder_identity:
        return Check(
            name="leader",
            state=CheckState.FAILED,
            text=f"the Lease {LEADER} has no holder",
            remedy=remedy,
        )
    renewed = found.spec.renew_time
    if renewed is None or now - renewed > STALE:
        text = (
            f"{found.spec.holder_identity} has not renewed the Lease {LEADER} since "
            f"{renewed or 'ever'}"
        )
        return Check(name="leader", state=CheckState.FAILED, text=text, remedy=remedy)
    return Check(
        name="leader", state=CheckState.OK, text=f"{found.spec.holder_identity} publishes the state"
    )


def _partitions(facts: Facts, *, now: datetime) -> Iterator[Check]:
    for service in RECONCILERS if facts.leases is not None else ():
        held: list[int] = []
        replicas = 0
        for lease in facts.leases or []:
            renewed = lease.spec.renew_time
            is_alive = renewed is not None and now - renewed <= STALE
            if lease.metadata.labels.get(labels.REPLICA_OF) == service and is_alive:
                held += (
                    ownership.parse_partitions(
                        lease.metadata.annotations.get(labels.PARTITIONS, "")
                    )
                    or ()
                )
                replicas += 1
        name = f"partitions of {service}"
        twice, missing = len(held) - len(set(held)), PARTITIONS - len(set(held))
        remedy = (
            f"see 'kubectl -n {facts.namespace} logs deploy/{service}'; a hand-over takes some "
            "seconds"
        )
        text = f"{len(set(held))} of {PARTITIONS} held by {replicas} replica(s)"
        if twice:
            yield Check(
                name=name,
                state=CheckState.FAILED,
                text=f"{text}; {twice} held twice",
                remedy=remedy,
            )
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
        end = min(certificates.read_end(each) for each in facts.certificates)
    except ValueError:
        return Check(name=name, state=CheckState.FAILED, text="cannot be read", remedy=remedy)
    text = f"good until {end:%Y-%m-%d}"
    if end <= now:
        return Check(
            name=name, state=CheckState.FAILED, text=f"ended on {end:%Y-%m-%d}", remedy=remedy
        )
    if end - now < SOON:
        return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
    return Check(name=name, state=CheckState.OK, text=text)


def _ray_services(facts: Facts) -> Iterator[Check]:
    """Yield the number of RayServices by phase, and a check for each RayService with a fault."""
    if facts.ray_services is None:
        yield Check(
            name="RayServices",
            state=CheckState.UNKNOWN,
            text="you may not read RayServices of all namespaces",
        )
        return
    ours = [each for each in facts.ray_services if each.manager == labels.MANAGED_BY_US]
    current = [(each.metadata, phases.of(each)) for each in ours]
    counts = Counter(each.phase for _, each in current)
    text = (
        ", ".join(f"{number} {phase}" for phase, number in sorted(counts.items()))
        or "there is none"
    )
    yield Check(name="RayServices", state=CheckState.OK, text=text)
    wrong = [(meta, each) for meta, each in current if phases.tone(each.phase) is Tone.BAD]
    for meta, each in wrong[:SHOWN]:
        yield Check(
            name=f"RayService {meta.namespace}/{meta.name}",
            state=CheckState.WARNING,
            text=f"{each.phase}: {each.message}".rstrip(": "),
            remedy=f"'raybus explain {meta.name} -n {meta.namespace}'",
        )
    if wrong[SHOWN:]:
        text = f"{len(wrong[SHOWN:])} more have a fault"
        yield Check(
            name="other RayServices",
            state=CheckState.WARNING,
            text=text,
            remedy="'raybus list -A' shows all",
        )
