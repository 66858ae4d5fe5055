"""Mutants written by hand. Each one breaks a decision, and a named test must fail."""

from typing import Final

import msgspec

SERVICE: Final = "services/service-reconciler/src/service_reconciler"
JOB: Final = "services/job-reconciler/src/job_reconciler"
TRAFFIC: Final = "services/traffic-manager/src/traffic_manager"
CLUSTER: Final = "services/cluster-reconciler/src/cluster_reconciler"
LIFE: Final = "scenario/cluster_reconciler/test_life.py"
COMMON: Final = "libs/common/src/common"
FORWARD: Final = "scenario/upgrade/test_forward.py"
BACK: Final = "scenario/upgrade/test_rollback.py"


class TextEdit(msgspec.Struct, frozen=True):
    """Replaces a text that occurs exactly once in a file."""

    file: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a service's code, and the test that must fail with it."""

    what: str
    """What the mutant breaks, as a phrase for the page of acceptance cases."""
    file: str
    old: str
    new: str
    test: str
    """Path of the test below tests/, with its function."""
    case: int | None = None
    """The acceptance case of the RayService specification that the test proves."""
    also: tuple[TextEdit, ...] = ()
    """Further edits, for decisions that the code makes in a second place."""

    @property
    def edits(self) -> tuple[TextEdit, ...]:
        return (TextEdit(self.file, self.old, self.new), *self.also)


TABLE: Final = (
    Mutant(
        case=31,
        what="a missing HTTPRoute kind fails the pass of traffic-manager",
        file=f"{TRAFFIC}/observe.py",
        old="        with suppress(errors.NotFound):\n",
        new="        with suppress(errors.Conflict):\n",
        test=(
            "scenario/service_reconciler/test_upgrade.py::"
            "test_31_without_the_gateway_api_a_whole_life_fails_no_pass_of_either_service"
        ),
    ),
    Mutant(
        case=46,
        what="replicas count although the application deploys",
        file=f"{TRAFFIC}/status/health.py",
        old="    if not serve_status.is_running(details):\n",
        new="    if False and not serve_status.is_running(details):\n",
        test=(
            f"{FORWARD}::test_46_an_application_that_deploys_in_mid_upgrade_stops_the_weights_"
            "until_it_runs"
        ),
    ),
    Mutant(
        case=47,
        what="the capacity that Serve reports is not compared with the target capacity",
        file=f"{TRAFFIC}/status/health.py",
        old="    if serve_status.capacity(details) != share.capacity:\n",
        new="    if False and serve_status.capacity(details) != share.capacity:\n",
        test=(
            f"{FORWARD}::"
            "test_47_traffic_waits_until_serve_reports_the_target_capacity_that_it_was_sent"
        ),
        also=(
            TextEdit(
                f"{TRAFFIC}/status/health.py",
                "    most = min(capacity, answer.capacity)\n",
                "    most = capacity\n",
            ),
        ),
    ),
    Mutant(
        case=48,
        what="a backend without a ready endpoint may get traffic",
        file=f"{TRAFFIC}/status/health.py",
        old="    return not view.endpoints and ",
        new="    return False and not view.endpoints and ",
        test=f"{FORWARD}::test_48_no_weight_ever_moves_to_a_backend_without_a_ready_endpoint",
    ),
    Mutant(
        case=54,
        what="the status is written at every reconcile",
        file=f"{SERVICE}/status/compute.py",
        old="    if essence(old) == essence(new) and _list_copied(old)",
        new="    if False and essence(old) == essence(new) and _list_copied(old)",
        test=f"{FORWARD}::test_54_an_hour_at_rest_costs_no_write_no_event_and_few_reads",
    ),
    Mutant(
        case=57,
        what="the Serve Service of an earlier strategy is not kept up to date",
        file=f"{SERVICE}/serving.py",
        old="    if not observed.is_incremental or observed.serve_service is not None:\n",
        new="    if not observed.is_incremental:\n",
        test=(
            f"{FORWARD}::test_57_a_service_may_change_to_steps_together_with_its_spec_and_its_"
            "serve_service_works_throughout"
        ),
    ),
    Mutant(
        case=58,
        what="an upgrade goes on under the new strategy",
        file=f"{COMMON}/ray/serve_writer.py",
        old="        return is_recorded(service)\n",
        new="        return asks_for_steps(service)\n",
        test=(
            f"{FORWARD}::"
            "test_58_a_service_that_leaves_the_steps_in_mid_upgrade_finishes_as_it_began"
        ),
    ),
    Mutant(
        case=62,
        what="the side that shrinks goes below its traffic",
        file=f"{TRAFFIC}/migration/capacity.py",
        old="        return max(shrinking.weight, shrinking.capacity - policy.surge)\n",
        new="        return max(0, shrinking.weight - policy.step)\n",
        test=f"{BACK}::test_62_capacity_stays_above_traffic_on_the_way_back",
        also=(
            TextEdit(
                f"{TRAFFIC}/migration/capacity.py",
                "    return policy.needed(max(side.weight, side.sent or 0) if is_behind else "
                "side.weight)\n",
                "    return 0\n",
            ),
        ),
    ),
    Mutant(
        case=63,
        what="a head that is not ready counts as alive",
        file=f"{TRAFFIC}/status/health.py",
        old="    return head_is_ready(view.cluster) and view.serve.silences < SILENT\n",
        new="    return view.serve.silences < SILENT\n",
        test=f"{BACK}::test_63_a_rollback_does_not_wait_for_a_pending_cluster_without_a_ready_head",
        also=(
            TextEdit(
                f"{TRAFFIC}/status/health.py",
                "    if not head_is_ready(view.cluster):\n        return",
                "    if False and not head_is_ready(view.cluster):\n        return",
            ),
        ),
    ),
    Mutant(
        case=65,
        what="a name that was reverted is kept, and its cluster created",
        file=f"{SERVICE}/promotion/rollback.py",
        old="        return created if _is_new_needed(observed, active, control) else dropped\n",
        new="        return created\n",
        test=f"{BACK}::test_65_a_name_that_is_reverted_before_its_cluster_exists_leaves_none",
    ),
    Mutant(
        case=73,
        what="a Serve config is sent without the token",
        file=f"{COMMON}/ray/cluster_dashboards.py",
        old="        head = await self._find_head(cluster)\n",
        new=(
            "        head = await self._find_head(cluster)\n      "
            "  head = msgspec.structs.replace(head, token=None if config else head.token)\n"
        ),
        test=(
            "scenario/service_reconciler/test_serve.py::"
            "test_73_every_call_to_a_dashboard_has_the_token_of_the_clusters_secret"
        ),
    ),
    Mutant(
        case=94,
        what="times in the future are accepted",
        file=f"{TRAFFIC}/status/traffic_record.py",
        old="    latest = now + SKEW\n",
        new="    latest = now + timedelta(days=1)\n",
        test=(
            "scenario/service_reconciler/test_steps.py::"
            "test_94_steps_go_on_in_their_time_when_the_clock_jumps"
        ),
    ),
    Mutant(
        what="a cluster that the plan names gets a deadline in the same plan",
        file=f"{SERVICE}/plan.py",
        old="draining.decide(observed, _list_named_clusters(decided), now=now)",
        new="draining.decide(observed, now=now)",
        test=(
            "scenario/service_reconciler/test_return.py::"
            "test_a_cluster_that_returns_after_its_bake_keeps_no_deadline"
        ),
    ),
    Mutant(
        what="the deadline of a cluster that returns stays",
        file=f"{SERVICE}/draining.py",
        old="        cluster.metadata.name: dict.fromkeys(marks_of(cluster))\n",
        new="        cluster.metadata.name: {}\n",
        test=(
            "scenario/service_reconciler/test_return.py::"
            "test_a_reverted_upgrade_returns_to_the_replaced_cluster_within_its_deletion_delay"
        ),
    ),
    Mutant(
        what="a newer version returns without its gates",
        file=f"{SERVICE}/observed.py",
        old="return old if is_wanted and born <= later else None",
        new="return old if is_wanted else None",
        test=(
            "scenario/service_reconciler/test_return.py::"
            "test_only_the_way_back_is_free_of_a_new_cluster"
        ),
    ),
    Mutant(
        what="ENABLE_ZERO_DOWNTIME is ignored",
        file=f"{SERVICE}/settings.py",
        old='feature_gates.is_on(environ, "ENABLE_ZERO_DOWNTIME", default=True)',
        new="True",
        test=(
            "unit/service_reconciler/test_settings.py::test_a_variable_sets_its_switch_and_no_other"
        ),
    ),
    Mutant(
        what="lastTrafficMigratedTime is never written",
        file=f"{SERVICE}/status/compute.py",
        old="        last_traffic_migrated_time=None\n        if share.moved_at is None\n"
        "        else whole_seconds(share.moved_at),\n",
        new="        last_traffic_migrated_time=None,\n",
        test=(
            "scenario/upgrade/test_forward.py::"
            "test_the_status_has_the_times_of_its_writing_and_of_the_last_move_of_traffic"
        ),
    ),
    Mutant(
        what="lastUpdateTime of a RayService is never refreshed",
        file=f"{SERVICE}/status/compute.py",
        old="    return msgspec.structs.replace(new, last_update_time=whole_seconds(now))\n",
        new="    return msgspec.structs.replace(new, last_update_time=old.last_update_time)\n",
        test=(
            "scenario/upgrade/test_forward.py::"
            "test_the_status_has_the_times_of_its_writing_and_of_the_last_move_of_traffic"
        ),
    ),
    Mutant(
        what="a status that contradicts itself is not reported",
        file=f"{CLUSTER}/refusals.py",
        old="        return _report(Refuse(event=events.INVALID_STATUS",
        new="        return EMPTY_PLAN or _report(Refuse(event=events.INVALID_STATUS",
        test=(
            f"{LIFE}::"
            "test_a_status_with_both_conditions_of_suspension_is_reported_and_nothing_is_done"
        ),
    ),
    Mutant(
        what="the deletion of a pod that failed has another reason",
        file=f"{CLUSTER}/reasons.py",
        old='    DELETE_HEAD_POD = "FailedDeleteHeadPod"\n',
        new='    DELETE_HEAD_POD = "FailedDeletePod"\n',
        also=(
            TextEdit(
                f"{CLUSTER}/reasons.py",
                '    DELETE_WORKER_POD = "FailedDeleteWorkerPod"\n',
                '    DELETE_WORKER_POD = "FailedCreateWorkerPod"\n',
            ),
        ),
        test=f"{LIFE}::test_a_pod_that_cannot_be_deleted_is_named_by_its_kind",
    ),
    Mutant(
        what="the observed generation of a RayCluster is always 0",
        file=f"{CLUSTER}/status/compute.py",
        old="        observed_generation=cluster.metadata.generation,\n",
        new="        observed_generation=0,\n",
        test=f"{LIFE}::test_a_status_has_its_generation_its_time_and_the_beginning_of_each_state",
    ),
    Mutant(
        what="the time of a RayCluster's status is never refreshed",
        file=f"{CLUSTER}/status/compute.py",
        old="        last_update_time=whole_seconds(now),\n",
        new="        last_update_time=old.last_update_time or whole_seconds(now),\n",
        test=f"{LIFE}::test_a_status_has_its_generation_its_time_and_the_beginning_of_each_state",
    ),
    Mutant(
        what="a RayCluster forgets when its earlier states began",
        file=f"{CLUSTER}/status/compute.py",
        old=(
            "    return {**(old.state_transition_times or {}), state: "
            "whole_seconds(observed.now)}\n"
        ),
        new="    return {state: whole_seconds(observed.now)}\n",
        test=f"{LIFE}::test_a_status_has_its_generation_its_time_and_the_beginning_of_each_state",
    ),
)
