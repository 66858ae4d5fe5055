"""Checks an UpgradePolicy, and evaluates its gates on metrics of the clusters and of Prometheus.

Metrics of pods are read through the API server's proxy, with the rights of the user. Each
Prometheus query is sent once from this machine. It may fail here although raybus reaches
Prometheus.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
import re2

from common import errors, labels
from common.api.core import Pod
from common.api.kubernetes_syntax import dns_1123_subdomain_problems
from common.api.meta import Items
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, UPGRADE_POLICY, format_selector
from common.ray import dashboard, ports, request_metrics, serve_writer
from common.ray.request_metrics import Sample
from common.ray.serve_api import address
from common.targets import Targets
from common.upgrade import gates, prometheus
from common.upgrade import policy as upgrade_policy
from common.upgrade.gate_types import AnyGate, PrometheusGate, WebhookGate
from common.upgrade.gates import GateOutcome, GateResult
from common.upgrade.inquiries import request_of
from common.upgrade.outbound import reached_within
from common.upgrade.policy import PolicyError, UpgradePolicy
from common.upgrade.prometheus import Readings
from common.upgrade.webhook import Checkpoint
from raybus_cli.linting.serve_schema import LintFinding, LintLevel
from raybus_cli.manifests import FieldPath, ManifestDocument
from raybus_cli.planning import policies


class TrialResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a gate."""

    gate: str
    outcome: GateOutcome
    requests: int
    value: float | None
    """Value that the gate evaluates: a share of requests, seconds, or a Prometheus query result."""
    limit: float | None
    route: str
    """Route prefix; empty for all requests."""
    text: str


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A pod whose metrics cannot be read."""

    pod: str
    problem: str


class RequestMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Request metrics of all pods of a cluster."""

    cluster: str
    sample: Sample
    unread: tuple[Unread, ...] = ()


class Trial(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of all gates of a policy."""

    namespace: str
    service: str
    policy: str
    active: str
    """The cluster that is the baseline."""
    pending: str
    """The cluster that is evaluated; equal to `active` if there is no upgrade."""
    gates: list[TrialResult]
    unread: list[Unread]

    @property
    def has_failed(self) -> bool:
        return any(gate.outcome is GateOutcome.FAIL for gate in self.gates)


def evaluate(
    namespace: str,
    service: str,
    policy: UpgradePolicy,
    active: RequestMetrics,
    pending: RequestMetrics,
    answers: Mapping[PrometheusGate, GateResult],
) -> Trial:
    """Evaluate the gates of a policy on the request metrics of both clusters.

    Without an upgrade, `pending` is equal to `active`. `answers` are the results of the Prometheus
    gates.
    """
    results = [_evaluate_gate(gate, active, pending, answers) for gate in policy.gates]
    return Trial(
        namespace=namespace,
        service=service,
        policy=policy.name,
        active=active.cluster,
        pending=pending.cluster,
        gates=[
            TrialResult(
                gate=result.gate.title,
                outcome=result.outcome,
                requests=result.requests,
                value=result.value,
                limit=result.limit,
                route=result.route,
                text=result.text,
            )
            for result in results
        ],
        unread=[
            *active.unread,
            *(unread for unread in pending.unread if unread not in active.unread),
        ],
    )


def _evaluate_gate(
    gate: AnyGate,
    active: RequestMetrics,
    pending: RequestMetrics,
    answers: Mapping[PrometheusGate, GateResult],
) -> GateResult:
    if isinstance(gate, PrometheusGate):
        return answers[gate]
    if isinstance(gate, WebhookGate):
        text = f"{gate.title}: raybus asks {gate.host} during an upgrade alone"
        return GateResult(gate=gate, outcome=GateOutcome.INCONCLUSIVE, text=text)
    return gates.evaluate(gate, active.sample, pending.sample)


def format_trial(trial: Trial) -> list[str]:
    """Format a trial as text, one line for each gate."""
    compared = (
        f"RayCluster {trial.active} with itself: there is no upgrade"
        if trial.active == trial.pending
        else f"RayCluster {trial.pending} with {trial.active}"
    )
    head = f"UpgradePolicy {trial.policy} compares {compared}"
    return [
        head,
        *(f"  {gate.outcome}: {gate.text}" for gate in trial.gates),
        *([] if trial.gates else ["  no gates"]),
    ]


async def run_queries(
    policy: UpgradePolicy, step: Checkpoint
) -> Mapping[PrometheusGate, GateResult]:
    """Run the Prometheus queries of a policy once, and return the results by gate.

    The names in `step` replace the placeholders of the queries.
    """
    return {
        gate: await _run_query(gate, step)
        for gate in policy.gates
        if isinstance(gate, PrometheusGate)
    }


async def _run_query(gate: PrometheusGate, step: Checkpoint) -> GateResult:
    try:
        async with reached_within(Targets.from_url(urlsplit(gate.url))) as server:
            answer = await server.send(request_of(step, gate))
    except errors.Unavailable as problem:
        return gates.unanswered(
            gate, f"{problem}; that is from this machine, raybus asks from its pods"
        )
    try:
        readings = prometheus.after(Readings(), gate, prometheus.read(answer), now=0)
    except errors.Unavailable as problem:
        return gates.unanswered(gate, str(problem))
    return prometheus.result(gate, readings, None, now=0)


MAX_CONCURRENT_READS: Final = 16
READ_TIMEOUT_SECONDS: Final = 10.0
"""Seconds until a read of one pod's metrics times out."""


async def measure(kube: KubeClient, namespace: str, cluster: str) -> RequestMetrics:
    """Read the request metrics of a cluster's pods, and return their sum.

    Raise `Rejected` if no pod reports metrics.
    """
    body = await kube.list(
        POD, namespace, label_selector=format_selector({labels.CLUSTER: cluster})
    )
    pods = sorted(
        msgspec.json.decode(body, type=Items[Pod]).items, key=lambda pod: pod.metadata.name
    )
    of: RayCluster | None = None
    if any(len(pod.spec.containers) > 1 for pod in pods):
        # Without the right to read the RayCluster, the default ports are used.
        with suppress(errors.RaybusError):
            answer = await kube.get(RAY_CLUSTER, namespace, cluster)
            of = msgspec.json.decode(answer, type=RayCluster)
    gate, samples, unread = asyncio.Semaphore(MAX_CONCURRENT_READS), list[Sample](), list[Unread]()

    async def ask(pod: Pod) -> None:
        async with gate:
            try:
                samples.append(await _read_sample(kube, of, pod))
            except errors.RaybusError as problem:
                unread.append(Unread(pod=pod.metadata.name, problem=str(problem)))

    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(ask(pod))
    unread.sort(key=lambda entry: entry.pod)
    if not samples:
        why = f"{unread[0].pod}: {unread[0].problem}" if unread else "it has no pods"
        raise errors.Rejected(f"no pod of RayCluster {cluster} reports its requests ({why})")
    return RequestMetrics(
        cluster=cluster, sample=request_metrics.total(samples), unread=tuple(unread)
    )


async def _read_sample(kube: KubeClient, of: RayCluster | None, pod: Pod) -> Sample:
    port = address(of, pod, "metrics", ports.METRICS).port
    path = POD.proxy(pod.metadata.namespace, pod.metadata.name, port, dashboard.METRICS)
    try:
        async with asyncio.timeout(READ_TIMEOUT_SECONDS):
            body = await kube.request("GET", path, max_size=dashboard.MAX_METRICS_SIZE)
    except TimeoutError as problem:
        raise errors.Unavailable(f"no answer within {READ_TIMEOUT_SECONDS:g} s") from problem
    series = request_metrics.parse(body)
    if series is None:
        raise errors.Unavailable(f"port {port} has no metrics of Ray that can be read")
    return request_metrics.by_route(series.values())


_PART: Final = re2.compile(r"[A-Za-z]+|\d+")


def find_violations(document: ManifestDocument) -> list[LintFinding]:
    """Return the errors for which the API server would reject the policy."""
    problems: list[tuple[str, str]] = []
    version = document.body.get("apiVersion")
    if version != UPGRADE_POLICY.api_version:
        problems.append(("apiVersion", f"{version!s:.60} is not {UPGRADE_POLICY.api_version}"))
    problems += [("metadata.name", text) for text in dns_1123_subdomain_problems(document.name)[:1]]
    try:
        parse_policy(document)
    except PolicyError as problem:
        for detail in problem.problems:
            field, _, text = detail.partition(": ")
            problems.append((field, text))
    return [
        LintFinding(
            file=document.file,
            line=document.find_line(_split_path(field)),
            level=LintLevel.ERROR,
            field=field,
            text=text,
        )
        for field, text in problems
    ]


def advise(document: ManifestDocument, services: Iterable[ManifestDocument]) -> list[LintFinding]:
    """Return advice for a valid policy about parts that do not apply to some of `services`.

    These are the RayServices that follow the policy and move all traffic at once.
    """
    followers = [
        service.name
        for service in services
        if _is_followed_by(service, document) and not _moves_in_steps(service)
    ]
    if not followers:
        return []
    why = f"does not apply to RayService {', '.join(sorted(followers))}: all traffic moves at once"
    return [
        LintFinding(
            file=document.file,
            line=document.find_line(_split_path(field)),
            level=LintLevel.ADVICE,
            field=field,
            text=f"{why}; {policies.NO_REQUESTS}" if policies.NO_REQUESTS in text else why,
        )
        for field, text in policies.find_unused_parts(parse_policy(document)).items()
    ]


def _is_followed_by(service: ManifestDocument, document: ManifestDocument) -> bool:
    """Return whether a RayService follows a policy.

    The service names the policy, or names none and the policy is the default of the namespace.
    """
    name = _get_section(service, "metadata", "annotations").get(labels.UPGRADE_POLICY)
    is_default = (
        _get_section(document, "metadata", "annotations").get(labels.DEFAULT_POLICY) == "true"
    )
    places = (_get_section(body, "metadata").get("namespace") for body in (service, document))
    return len(set(places)) == 1 and (name == document.name if name else is_default)


def _moves_in_steps(service: ManifestDocument) -> bool:
    return _get_section(service, "spec", "upgradeStrategy").get("type") == serve_writer.INCREMENTAL


def _get_section(document: ManifestDocument, *path: str) -> Json:
    """Return a section of a manifest; empty if there is none."""
    section: Json = document.body
    for name in path:
        value = section.get(name)
        section = cast("Json", value) if isinstance(value, dict) else {}
    return section


def parse_policy(document: ManifestDocument) -> UpgradePolicy:
    """Parse the policy of a manifest; raise `PolicyError` if it is invalid."""
    return upgrade_policy.read(document.name, cast("Json", document.body.get("spec")))


def _split_path(field: str) -> FieldPath:
    return tuple(int(part) if part.isdigit() else part for part in _PART.findall(field))
