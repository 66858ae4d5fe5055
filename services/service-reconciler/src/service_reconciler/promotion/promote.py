"""Decide when traffic moves to the pending cluster and when that cluster becomes active.

Traffic moves only to proven capacity. The applications must run according to a read that began
after the last config was sent, each node with a running replica must have a healthy proxy and a
ready pod, and the new selector must have an endpoint. KubeRay moves traffic on "RUNNING" alone. The
promotion is derived from the selector of the Serve Service, so a crash before it loses nothing.
Spec rayservice §7.3, §13.1; acceptance 24-28.
"""

from collections.abc import Iterator

from common.api.core import Pod
from common.ray import cluster_traits as traits
from common.ray import serve_proxies, serve_status, submit
from common.ray.request_metrics import ALL, Requests
from common.ray.serve_status import ServeDetails
from common.ray.view import head_is_ready
from common.upgrade import gates
from common.upgrade import policy as upgrade_policy
from common.upgrade.gate_types import Gate
from common.upgrade.gates import GateOutcome, GateResult, Window
from common.upgrade.policy import WarmUpProgress
from common.upgrade.traffic_record import WHOLE
from service_reconciler.observed import ClusterView, Observed


def choose_target(observed: Observed, pause: str | None = None) -> tuple[str, str]:
    """Return the name of the cluster that the Services should select, and the reason.

    An empty name means that the Services do not change. `pause` is the reason of a pause, which
    keeps the traffic on the active cluster.
    """
    pending, active = observed.pending, observed.active
    if pending is not None:
        if observed.serving == pending.name:
            return pending.name, "the pending cluster serves already"
        why = (pause if active is not None else None) or explain_not_ready(observed, pending)
        if why is None:
            return pending.name, "the pending cluster is ready"
        return (active.name if active is not None else ""), f"the pending cluster waits: {why}"
    return (
        (active.name, "the active cluster serves")
        if active is not None
        else ("", "there is no cluster")
    )


def choose_target_in_steps(observed: Observed) -> tuple[str, str]:
    """Return the cluster that the head Service should select in a stepwise upgrade, and why.

    An empty name means that the Service does not change.
    """
    if observed.active is not None:
        return observed.active.name, "the active cluster is first until all has moved"
    if observed.pending is None:
        return "", "there is no cluster"
    details = observed.pending.serve.details
    is_whole = details is not None and serve_status.capacity(details) >= WHOLE
    why = explain_not_ready(observed, observed.pending) or (
        None if is_whole else "it does not run with its whole capacity yet"
    )
    return (
        ("", f"the pending cluster waits: {why}")
        if why
        else (observed.pending.name, "the first cluster is ready")
    )


def explain_not_ready(observed: Observed, pending: ClusterView) -> str | None:
    """Return why the pending cluster may not take the traffic yet; None if it may."""
    return explain_not_askable(observed, pending) or find_undecided_gate(observed)


def explain_not_askable(observed: Observed, pending: ClusterView) -> str | None:
    """Return why gates may not send requests to the pending cluster yet; None if they may."""
    return explain_not_serving(observed, pending) or (
        None if observed.warm_up is None else observed.warm_up.lacking
    )


def explain_not_serving(observed: Observed, pending: ClusterView) -> str | None:
    """Return why the pending cluster cannot serve yet; None if it can serve."""
    return next(_list_obstacles(observed, pending), None)


def find_undecided_gate(observed: Observed) -> str | None:
    """Return the text of the first gate that has not passed; None if all traffic may move.

    In a stepwise upgrade the result is None, because traffic-manager evaluates the gates.
    """
    policy = observed.policy
    if (
        policy is None
        or observed.is_incremental
        or observed.active is None
        or observed.controls.promotes
    ):
        return None
    for gate in upgrade_policy.decide_before(policy):
        result = observed.answers.get(gate)
        if result is None or result.outcome is not GateOutcome.PASS:
            return f"{gate.title} is evaluated" if result is None else result.text
    return None


def judge_gate(gate: Gate, window: Window, warm_up: WarmUpProgress | None) -> GateResult:
    """Return the result of a gate on the requests that the pending cluster answered so far.

    The gate does not fail before all requests of the warm-up are counted. The first requests are
    slow while a model loads, and none of them is a user's request.
    """
    result = gates.within(gate, window, steps=1)
    counted = window.pending.get(ALL, Requests()).total
    is_early = warm_up is not None and counted < warm_up.wanted
    return (
        gates.within(gate, gates.NO_WINDOW, steps=1)
        if is_early and result.outcome is GateOutcome.FAIL
        else result
    )


def _list_obstacles(observed: Observed, pending: ClusterView) -> Iterator[str]:
    if not head_is_ready(pending.cluster):
        yield "its head pod is not ready"
    goal = observed.service.spec.serve_config_v2
    if not submit.has(pending, goal):
        yield "it does not have the Serve config yet"
    details = pending.declared
    if details is None:
        yield pending.serve.problem or "its dashboard was not asked yet"
        return
    if (unknown := serve_status.missing(details, pending.parse(goal).applications)) is not None:
        yield unknown
    if not serve_status.is_running(details):
        yield serve_status.not_serving(details) or "its applications do not run"
    if observed.active is None:  # No cluster serves, so nothing can be lost.
        return
    if (reason := serve_status.not_serving(details)) is not None:
        yield reason
    yield from _list_late_pods(observed, pending, details)


def _list_late_pods(
    observed: Observed, pending: ClusterView, details: ServeDetails
) -> Iterator[str]:
    """Yield a text for each pod that has replicas but cannot receive requests yet."""
    proxies = serve_proxies.reported(details)
    if proxies.are_disabled:
        return
    ready = [pod for pod in pending.proxies if pod.metadata.deletion_timestamp is None]
    if not ready:
        excludes_head = observed.service.excludes_head_pod
        config = pending.cluster.raw_spec
        why = serve_proxies.unreachable(proxies, config, excludes_head=excludes_head)
        yield why or "none of its pods is ready to be sent requests"
    head = pending.cluster.status.head.pod_ip
    nodes = proxies.nodes(details, head, pending.cluster.raw_spec)
    for pod in sorted(pending.offered, key=lambda pod: pod.metadata.name):
        may_be_ready = proxies.may_be_at(traits.ray_container(pending.cluster, pod))
        if pod.status.pod_ip in nodes and pod not in ready and may_be_ready:
            yield _describe_late_pod(pod, details)


def _describe_late_pod(pod: Pod, details: ServeDetails) -> str:
    text = f"pod {pod.metadata.name} holds replicas and is not ready"
    proxies = (details.proxies or {}).values()
    if any(proxy.node_ip == pod.status.pod_ip and proxy.status == "HEALTHY" for proxy in proxies):
        text += " though its proxy is healthy; its Events tell why the readiness probe fails"
    return text
