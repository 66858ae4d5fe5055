"""The tree of a RayService: what is shown of each state, and how it renders."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from common import labels
from common.upgrade.gate_record import RecordedFigures
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import picture, tree
from raybus_cli.show.phase import ServicePhase
from support.builders import snapshots
from support.builders.snapshots import (
    BLUE,
    GREEN,
    NOW,
    READY,
    UPGRADING,
    a_condition,
    a_pod,
    a_service,
    a_snapshot,
    at_rest,
    gated,
    in_steps,
)
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of


@cases(
    ("name", "snapshot"),
    {
        "a service that serves": ("at-rest", at_rest()),
        "an upgrade in steps": ("in-steps", in_steps()),
        "an upgrade with gates": ("gated", gated()),
        "an upgrade that does not progress, Serve unseen": (
            "stalled",
            in_steps(
                UPGRADING,
                a_condition(
                    "UpgradeStalled",
                    reason="InsufficientCapacity",
                    message="No progress for 10m0s: no node",
                ),
                weight=0,
                serve={},
            ),
        ),
        "nothing but the RayService": ("new", a_snapshot(a_service(endpoints=0), clusters=[])),
    },
)
def test_it_renders_as(name: str, snapshot: Snapshot, golden: Golden) -> None:
    found = tree.build(snapshot, now=NOW)
    golden.check(f"cli/tree-{name}.txt", text_of(picture.draw(found)))
    golden.check(f"cli/line-{name}.txt", picture.format_line(found) + "\n")


def test_weights_capacities_and_the_next_step_are_printed() -> None:
    found = tree.build(in_steps(weight=30), now=NOW)
    blue, green = found.clusters
    assert (blue.role, blue.weight, blue.target_capacity, blue.ready_capacity) == (
        "active",
        70,
        90,
        90,
    )
    assert (green.role, green.weight, green.target_capacity, green.ready_capacity) == (
        "pending",
        30,
        30,
        30,
    )
    due = NOW + timedelta(seconds=18)
    assert found.upgrade == tree.UpgradeProgress(
        direction="forward", step=3, steps=10, next_step_seconds=18, next_step_at=due
    )


def test_the_steps_of_an_upgrade_are_those_of_its_policy() -> None:
    found = tree.build(gated(), now=NOW).upgrade
    assert found is not None
    assert (found.step, found.steps, found.next_step_seconds) == (1, 3, 18)
    between = tree.build(gated(weight=20), now=NOW).upgrade
    assert between is not None
    assert (between.step, between.steps, between.next_step_seconds) == (1, 3, 0)


def test_the_gates_at_the_present_weight_are_shown_with_their_newest_figures() -> None:
    later = RecordedFigures(
        requests=900, value=0.001, limit=0.01, text="errorRate: 1 of 900 requests failed"
    )
    found = tree.build(gated(replace(snapshots.PASSED, latest=later)), now=NOW).upgrade
    assert found is not None
    assert found.gates is not None
    assert (found.gates.weight, found.gates.seen_at) == (10, NOW - timedelta(seconds=4))
    (gate,) = found.gates.gates
    assert (gate.gate, gate.outcome, gate.requests, gate.value, gate.text) == (
        "errorRate", "Pass", 900, 0.001, later.text
    )  # fmt: skip


def test_a_rollback_shows_no_gates() -> None:
    back = a_condition(
        "RollbackInProgress", reason="DesiredClusterSpecChanged", message="Goal state reverted"
    )
    snapshot = gated()
    rolled = in_steps(UPGRADING, back, weight=30)
    found = tree.build(replace(snapshot, service=rolled.service), now=NOW).upgrade
    assert found is not None
    assert (found.gates, found.steps) == (None, 10)


def test_what_a_tenant_wrote_into_the_record_does_nothing_to_a_terminal() -> None:
    state = replace(snapshots.PASSED, text="\x1b[2Jgone" + "x" * 500, gate="\x1b]0;t\x07g")
    found = tree.build(gated(state), now=NOW)
    assert "\x1b" not in text_of(picture.draw(found)) + picture.format_line(found)
    assert found.upgrade is not None
    assert found.upgrade.gates is not None
    assert len(found.upgrade.gates.gates[0].text) <= 200


def test_a_record_on_the_route_of_another_owner_is_not_shown() -> None:
    snapshot = gated()
    assert snapshot.route is not None
    meta = replace(snapshot.route.metadata, owner_references=[])
    route = replace(snapshot.route, metadata=meta)
    found = tree.build(replace(snapshot, route=route), now=NOW).upgrade
    assert found is not None
    assert found.gates is None


def test_what_is_ready_is_less_than_what_is_wanted_while_replicas_start() -> None:
    snapshot = in_steps(serve={GREEN: snapshots.serving(target=4, running=1, capacity=40)})
    assert tree.build(snapshot, now=NOW).clusters[1].ready_capacity == 10


def test_a_pause_has_no_next_step() -> None:
    paused = a_condition(
        "UpgradePaused", reason="PauseRequested", message="Paused by raybus.io/pause."
    )
    found = tree.build(in_steps(UPGRADING, paused), now=NOW)
    assert found.phase is ServicePhase.PAUSED
    assert found.upgrade is not None
    assert found.upgrade.next_step_seconds is None


def test_a_rollback_counts_what_is_back() -> None:
    back = a_condition(
        "RollbackInProgress", reason="DesiredClusterSpecChanged", message="Goal state reverted"
    )
    found = tree.build(in_steps(UPGRADING, back, weight=30), now=NOW)
    assert found.upgrade == tree.UpgradeProgress(direction="back", step=7, steps=10)


def test_a_draining_cluster_shows_its_end() -> None:
    draining = snapshots.a_cluster(GREEN, snapshots.a_config(snapshots.NEW_IMAGE))
    draining["metadata"]["annotations"][labels.DELETE_AFTER] = (
        NOW + timedelta(seconds=41)
    ).isoformat()
    snapshot = at_rest(clusters=[snapshots.a_cluster(BLUE, snapshots.a_config()), draining])
    branch = tree.build(snapshot, now=NOW).clusters[1]
    assert (branch.role, branch.note) == ("leaving", "is deleted in 41 s")


@cases(
    ("status", "state"),
    {
        "waits": ({}, "Pending"),
        "cannot be pulled": (
            {
                "containerStatuses": [
                    {"name": "ray", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
                ]
            },
            "ImagePullBackOff",
        ),
        "starts": (
            {
                "containerStatuses": [
                    {"name": "ray", "state": {"waiting": {"reason": "ContainerCreating"}}}
                ]
            },
            "Pending",
        ),
        "has no node": (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ]
            },
            "Unschedulable",
        ),
    },
)
def test_a_pods_state_is_the_term_of_kubectl(status: dict[str, Any], state: str) -> None:
    snapshot = at_rest(pods=[a_pod(BLUE, "gpu", 1, ready=False, **status)])
    assert tree.build(snapshot, now=NOW).clusters[0].pods[0].state == state


@cases(
    ("conditions", "phase"),
    {
        "not reconciled yet": ((), ServicePhase.STARTING),
        "ready": ((READY,), ServicePhase.READY),
        "an upgrade": ((READY, UPGRADING), ServicePhase.UPGRADING),
        "a stall is more specific": (
            (READY, UPGRADING, a_condition("UpgradeStalled")),
            ServicePhase.STALLED,
        ),
        "aborted": ((READY, a_condition("UpgradeAborted")), ServicePhase.ABORTED),
        "a version is taken back before the spec is tried": (
            (READY, a_condition("UpgradeAborted", reason="EarlierGateFailed")),
            ServicePhase.ROLLING_BACK,
        ),
        "invalid": (
            (a_condition("Ready", "False", reason="ValidationFailed"),),
            ServicePhase.INVALID,
        ),
        "starts": (
            (
                a_condition(
                    "Ready", "False", reason="Initializing", message="RayService is initializing"
                ),
            ),
            ServicePhase.STARTING,
        ),
        "too late": (
            (a_condition("Ready", "False", reason="InitializingTimeout"),),
            ServicePhase.TIMED_OUT,
        ),
        "no endpoints": (
            (a_condition("Ready", "False", reason="ZeroServeEndpoints"),),
            ServicePhase.NOT_READY,
        ),
        "suspended": (
            (a_condition("Ready", "False"), a_condition("Suspended")),
            ServicePhase.SUSPENDED,
        ),
    },
)
def test_the_phase_is_what_matters_most(
    conditions: tuple[dict[str, object], ...], phase: ServicePhase
) -> None:
    assert tree.build(a_snapshot(a_service(*conditions)), now=NOW).phase is phase
