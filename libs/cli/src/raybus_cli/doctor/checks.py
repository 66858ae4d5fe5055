"""The checks of `raybus doctor` on an installation."""

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
from raybus_cli.doctor.facts import RECONCILERS, Facts, Lease, Workload
from raybus_cli.show import phase as phases
from raybus_cli.show.phase import Tone

SERVICES: Final = ("watcher", *RECONCILERS)
LEADER: Final = "ray-operator-leader"
EXPIRY_WARNING: Final = timedelta(days=30)
"""Remaining validity below which a certificate leads to a warning."""
STALE_LEASE_AGE: Final = timedelta(seconds=60)
"""Maximum age of the last renewal of a held Lease; it allows for clocks that differ."""
MAX_SHOWN_SERVICES: Final = 10
"""Maximum number of faulty RayServices that get a check of their own."""
INSTALL: Final = (
    "install raybus: 'kubectl apply -k deploy/overlays/production'; is --raybus-namespace right?"
)


def check_all(facts: Facts, *, now: datetime) -> list[Check]:
    """Return the results of all checks, grouped by category."""
    return [
        *check.categorize(Category.KUBERNETES, Hint.INSTALL, prerequisites.check_server(facts)),
        *check.categorize(
            Category.KUBERNETES, Hint.FEATURE_GATES, *prerequisites.check_gates(facts)
        ),
        *check.categorize(
            Category.DEFINITIONS, Hint.UPGRADE, *prerequisites.check_definitions(facts)
        ),
        *check.categorize(
            Category.SERVICES,
            Hint.SERVICES,
            *(
                _check_outside_services(facts, now=now)
                if facts.is_outside
                else _check_services(facts)
            ),
            _check_leader(facts, now=now),
        ),
        *check.categorize(Category.SERVICES, Hint.REPLICAS, *_check_partitions(facts, now=now)),
        *(() if facts.is_outside else _check_nats_pods(facts, now=now)),
        *check.categorize(
            Category.GATEWAY_API, Hint.GATEWAY_API, prerequisites.check_gateways(facts)
        ),
        *check.categorize(
            Category.OPERATORS, Hint.TWO_OPERATORS, prerequisites.check_kuberay(facts)
        ),
        *check.categorize(Category.RIGHTS, Hint.RIGHTS, *prerequisites.check_rights(facts)),
        *check.categorize(Category.RAY_SERVICES, Hint.RAY_SERVICES, *_check_ray_services(facts)),
    ]


def _list_alive(facts: Facts, service: str, *, now: datetime) -> list[Lease]:
    """Return the Leases of a service's replicas that were renewed within `STALE_LEASE_AGE`."""
    return [
        lease
        for lease in facts.leases or ()
        if lease.metadata.labels.get(labels.REPLICA_OF) == service
        and lease.spec.renew_time is not None
        and now - lease.spec.renew_time <= STALE_LEASE_AGE
    ]


def _check_outside_services(facts: Facts, *, now: datetime) -> Iterator[Check]:
    """Check services that run outside the cluster; only their Leases are visible."""
    text = f"outside the cluster, with Leases in namespace {facts.namespace}"
    yield Check(name="installation", state=CheckState.OK, text=text)
    for service in RECONCILERS:
        alive = _list_alive(facts, service, now=now)
        if alive:
            text = f"{len(alive)} replica(s) outside the cluster"
            yield Check(name=service, state=CheckState.OK, text=text)
        else:
            text = f"no replica has renewed its Lease in namespace {facts.namespace}"
            remedy = f"start it; see {_describe_logs(facts, service)}"
            yield Check(name=service, state=CheckState.FAILED, text=text, remedy=remedy)


def _describe_logs(facts: Facts, service: str) -> str:
    """Return the instruction to read the logs of a service, for use in a remedy."""
    if facts.is_outside:
        return f"'docker compose logs {service}', or the output of 'raybus up'"
    return f"'kubectl -n {facts.namespace} logs deploy/{service}'"


def _check_services(facts: Facts) -> Iterator[Check]:
    if facts.deployments is None:
        yield Check(
            name="services",
            state=CheckState.UNKNOWN,
            text=f"you may not read Deployments in {facts.namespace}",
        )
        return
    deployments = {deployment.metadata.name: deployment for deployment in facts.deployments}
    for name in SERVICES:
        deployment = deployments.get(name)
        if deployment is None:
            text = f"there is no Deployment {name} in namespace {facts.namespace}"
            yield Check(name=name, state=CheckState.FAILED, text=text, remedy=INSTALL)
        else:
            yield _check_workload(deployment, name, facts.namespace)


def _check_workload(workload: Workload, name: str, namespace: str) -> Check:
    ready, wanted = workload.status.ready_replicas, workload.spec.replicas
    image = _find_image(workload.spec.template)
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


def _find_image(template: Json) -> str:
    spec: Json = template.get("spec") or {}
    containers = cast("list[Json]", spec.get("containers") or [{}])
    return str(containers[0].get("image", ""))


def _check_nats_pods(facts: Facts, *, now: datetime) -> Iterator[Check]:
    """Check the pods and the certificates of NATS in the cluster.

    Services outside the cluster need no such check: a replica that does not reach NATS has no
    partitions, so the check of the partitions fails.
    """
    yield from check.categorize(Category.NATS, Hint.NATS, _check_nats(facts))
    yield from check.categorize(
        Category.NATS, Hint.CERTIFICATES, _check_certificate(facts, now=now)
    )


def _check_nats(facts: Facts) -> Check:
    if facts.stateful_sets is None:
        return Check(
            name="nats",
            state=CheckState.UNKNOWN,
            text=f"you may not read StatefulSets in {facts.namespace}",
        )
    workload = next(
        (
            stateful_set
            for stateful_set in facts.stateful_sets
            if stateful_set.metadata.name == "nats"
        ),
        None,
    )
    if workload is None:
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
    return _check_workload(workload, "nats", facts.namespace)


def _check_leader(facts: Facts, *, now: datetime) -> Check:
    if facts.leases is None:
        return Check(
            name="leader",
            state=CheckState.UNKNOWN,
            text=f"you may not read Leases in {facts.namespace}",
        )
    lease = next(
        (candidate for candidate in facts.leases if candidate.metadata.name == LEADER), None
    )
    remedy = f"see {_describe_logs(facts, 'watcher')}"
    if lease is None or not lease.spec.holder_identity:
        return Check(
            name="leader",
            state=CheckState.FAILED,
            text=f"the Lease {LEADER} has no holder",
            remedy=remedy,
        )
    renewed = lease.spec.renew_time
    if renewed is None or now - renewed > STALE_LEASE_AGE:
        text = (
            f"{lease.spec.holder_identity} has not renewed the Lease {LEADER} since "
            f"{renewed or 'ever'}"
        )
        return Check(name="leader", state=CheckState.FAILED, text=text, remedy=remedy)
    return Check(
        name="leader", state=CheckState.OK, text=f"{lease.spec.holder_identity} publishes the state"
    )


def _check_partitions(facts: Facts, *, now: datetime) -> Iterator[Check]:
    for service in RECONCILERS if facts.leases is not None else ():
        alive = _list_alive(facts, service, now=now)
        replicas = len(alive)
        held_partitions = [
            partition
            for lease in alive
            for partition in ownership.parse_partitions(
                lease.metadata.annotations.get(labels.PARTITIONS, "")
            )
            or ()
        ]
        name = f"partitions of {service}"
        twice, missing = (
            len(held_partitions) - len(set(held_partitions)),
            PARTITIONS - len(set(held_partitions)),
        )
        remedy = f"see {_describe_logs(facts, service)}; a hand-over takes some seconds"
        text = f"{len(set(held_partitions))} of {PARTITIONS} held by {replicas} replica(s)"
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


def _check_certificate(facts: Facts, *, now: datetime) -> Check:
    name, remedy = "NATS certificate", "see 'kubectl logs nats-0 -c keeper', and docs/nats.md"
    if not facts.certificates:
        text = "you may not read ConfigMap nats-servers, or it holds none"
        return Check(name=name, state=CheckState.UNKNOWN, text=text)
    try:
        end = min(certificates.read_end(certificate) for certificate in facts.certificates)
    except ValueError:
        return Check(name=name, state=CheckState.FAILED, text="cannot be read", remedy=remedy)
    text = f"good until {end:%Y-%m-%d}"
    if end <= now:
        return Check(
            name=name, state=CheckState.FAILED, text=f"ended on {end:%Y-%m-%d}", remedy=remedy
        )
    if end - now < EXPIRY_WARNING:
        return Check(name=name, state=CheckState.WARNING, text=text, remedy=remedy)
    return Check(name=name, state=CheckState.OK, text=text)


def _check_ray_services(facts: Facts) -> Iterator[Check]:
    """Yield the number of RayServices by phase, and a check for each RayService with a fault."""
    if facts.ray_services is None:
        yield Check(
            name="RayServices",
            state=CheckState.UNKNOWN,
            text="you may not read RayServices of all namespaces",
        )
        return
    ours = [service for service in facts.ray_services if service.manager == labels.MANAGED_BY_US]
    current = [(service.metadata, phases.derive_phase(service)) for service in ours]
    counts = Counter(state.phase for _, state in current)
    text = (
        ", ".join(f"{number} {phase}" for phase, number in sorted(counts.items()))
        or "there is none"
    )
    yield Check(name="RayServices", state=CheckState.OK, text=text)
    wrong = [(meta, state) for meta, state in current if phases.get_tone(state.phase) is Tone.BAD]
    for meta, state in wrong[:MAX_SHOWN_SERVICES]:
        yield Check(
            name=f"RayService {meta.namespace}/{meta.name}",
            state=CheckState.WARNING,
            text=f"{state.phase}: {state.message}".rstrip(": "),
            remedy=f"'raybus explain {meta.name} -n {meta.namespace}'",
        )
    if wrong[MAX_SHOWN_SERVICES:]:
        text = f"{len(wrong[MAX_SHOWN_SERVICES:])} more have a fault"
        yield Check(
            name="other RayServices",
            state=CheckState.WARNING,
            text=text,
            remedy="'raybus list -A' shows all",
        )
