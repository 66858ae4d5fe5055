"""Holds an interleaved upgrade against the laws: after each write, as time passes, and before each
request.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from common import labels
from common.api.opaque import Body, Json
from common.feature_gates import BETA
from common.kube.resources import (
    CONTROLLER_REVISION,
    ENDPOINT_SLICE,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    SERVICE,
)
from common.ray import revision
from common.ray.revision import Revision, SendOutcome
from scenario.simulation.configs import config_of, image_of, read_config, short
from scenario.simulation.gate_sources import MAX_PASS, Count
from scenario.simulation.memo import of_objects
from scenario.simulation.rule_judge import RuleJudge
from scenario.simulation.upgrade_simulator import OTHER_NAME, OWN_ROUTE, SERVE, TWINS, AnyUpgrade
from service_reconciler.status.conditions import BOTH
from support.builders.ray_service import NAME, NAMESPACE
from support.fakes.kube import FakeKube, Request
from support.laws import find_broken, upgrade_moments, upgrade_requests, upgrade_states
from support.laws.upgrade_moments import Moment
from support.laws.upgrade_requests import REQUEST_LAWS, SentRequest
from support.laws.upgrade_states import State

OBSERVED: Final = 1.5
"""Seconds until the reports of a dashboard are observed.

Clusters that share the traffic are polled every second."""
STANDS: Final = 60.0
"""Seconds until the cause of a standstill is reported, if no deadline runs; policies wait for
less."""
HARMED: Final = 30.0
"""Seconds for which a cluster that could not serve counts as harmed."""
REPEAT: Final = 10.0
"""Seconds until a Serve config that could not be sent or recorded is tried again."""
UNREADY: Final = 3.0
"""Seconds after which a worker that is not ready counts as a loss (ADR 41)."""


class _Still(msgspec.Struct):
    """An upgrade in which nothing moves."""

    shape: tuple[Any, ...] = ()
    """The values whose change counts as a move."""
    number: int = 0
    """Number of earlier shapes."""
    is_named: bool = False
    """Whether a Warning has reported the cause since."""


class NeverRests(Exception):
    """Raised if the services act without end while the clock stands still."""


class LawJudge(RuleJudge):
    """Keeps the past that the laws need, and the broken laws."""

    def __init__(self, sim: AnyUpgrade) -> None:  # noqa: PLR0915  (a state, no logic)
        super().__init__(sim)
        self._sim = sim
        self._stamp = State(at=0.0)
        self.read_at = -1
        self.read_of: dict[tuple[object, ...], Any] = {}
        self.waits: Callable[[], bool] = lambda: False
        """Function that returns whether a pass is parked beyond now, or Ray still has to apply
        something."""
        self.found: dict[tuple[str, str], str] = {}
        """Broken laws by law and subject, with time and description."""
        self._surprised_at: dict[str, float] = {}
        self._unready_since: dict[str, float] = {}
        self.struck_at = -REPEAT
        self._silent_at: dict[str, float] = {}
        self._active_seen = ""
        self._replaced = ""
        """The cluster that was active before the present active cluster."""
        self._targets_before: dict[str, int] = {}
        """Target capacities before Ray applied a late PUT, until they are restored."""
        self.counts_from: int | None = None
        """Number of the write after which strikes are counted; None before the upgrade."""
        self.timers = upgrade_states.Timers()
        self.complete_configs: dict[str, frozenset[str]] = {}
        """Configs that the active cluster may get while another cluster is pending.

        These are the config that it runs, and the last one that was wanted for it."""
        self._pending_seen = ""
        self._goals_seen = 0
        """Number of goals at the time when the pending cluster was named."""
        self._puts_at: dict[str, list[float]] = {}
        self._writes_at: list[float] = []
        self.has_stalled = False
        self._allowed_at: dict[int, float] = {}
        """Time at which the user last allowed each missing capacity."""
        self._unmet: tuple[str, ...] = ()
        """What the upgrade lacked at its weight before the last write began."""
        self._policy_at = ("", -MAX_PASS)
        """The policy of the upgrade, and the time since when."""
        self._weighed: tuple[tuple[str, int, str], float, Count] = (("", 0, ""), 0.0, Count())
        """Pending cluster with weight and Serve config, the time since when, and its request counts
        until then."""
        self._failed_at: dict[int, str] = {}
        """`onFailure` of the upgrades that a gate ended, by the generation of their spec."""
        self._failed_for: dict[str, int] = {}
        """Generation at which a gate ended the upgrade to each pending cluster."""
        self._still = _Still()
        self._step_at: dict[int, float] = {}
        """Time at which the user last allowed each step size."""
        self._harmed_at: dict[str, float] = {}
        """Time at which each cluster last could not serve its traffic; a hanging dashboard does not
        count."""

    @property
    def kube(self) -> FakeKube:
        return self._sim.kube

    def note_action(self) -> None:
        """Record that a service acts now, and what the upgrade lacked before."""
        self._writes_at.append(self._sim.clock.monotonic())
        self._unmet = tuple(self.lacking())

    def note_late(self, changed: dict[str, int]) -> None:
        """Note clusters whose target Ray changed after the sender's timeout, with the target
        before.
        """
        self._surprised_at |= dict.fromkeys(changed, self._sim.clock.monotonic())
        self._targets_before = changed | self._targets_before

    def lacking(self) -> Iterator[str]:
        """Yield what the upgrade lacks at its weight before it may move on.

        By its policy it lacks nothing right after an edit of the policy, or if the user promotes.
        """
        (cluster, weight, config), since, before = self._weighed
        if cluster in self._sim.clusters and weight < upgrade_moments.WHOLE:
            yield from (f"its application {each}" for each in self._sim.model(cluster).lacking)
        text, policy_at = self._policy_at
        is_known = (
            self._sim.has_service
            and bool(text)
            and self._sim.clock.monotonic() - policy_at >= MAX_PASS
        )
        if not is_known or labels.PROMOTE in self._sim.annotations_now:
            return
        spec, in_steps = msgspec.json.decode(text)["spec"], self._sim.view.capacities[1] is not None
        steps = {each["weight"]: each for each in spec.get("steps", [])}
        if in_steps and weight and steps and weight not in steps:  # capacity allowed no more
            return
        head = self._sim.model(cluster)
        is_silent = self._sim.sources.now("metrics") == "none"
        read = head.shown if is_silent else Count(all=head.answered, well=head.answered_well)
        answered = Count(all=read.all - before.all, well=read.well - before.well)
        is_used = in_steps or "warmUp" in spec or spec.get("preview", {}).get("service", False)
        for gate in spec.get("gates", []):
            if "metric" in gate and not is_used:
                continue
            if self._sim.sources.unmet(gate, cluster, weight, since, answered, in_steps=in_steps):
                yield f"{gate} at {weight} percent"
        if "warmUp" in spec and (weight == 0 or not in_steps):
            warmed = self._sim.serve.warmed.get((cluster, config), 0)
            if warmed < spec["warmUp"]["requests"]:
                yield f"{warmed} of the requests of its warm-up"
        is_last = not in_steps or weight == upgrade_moments.WHOLE
        pauses = (
            "pause" in steps.get(weight, {})
            if in_steps
            else "pause" in steps.get(upgrade_moments.WHOLE, {})
        )
        if pauses or (is_last and not spec.get("autoPromote", True)):
            yield from self._unapproved(
                cluster, weight if in_steps else upgrade_moments.WHOLE, config
            )

    def _unapproved(self, cluster: str, weight: int, config: str) -> Iterator[str]:
        """Yield an approval that is missing, or was given to another Serve config."""
        text = self._sim.annotations_now.get(labels.APPROVED_STEP, "")
        approved, _, percent = text.partition("@")[0].rpartition("/")
        is_of_another = config not in self._sim.approved.get(text, {config})
        if approved != cluster or int(percent) < weight or is_of_another:
            yield f"an approval at {weight} percent"

    def _note_upgrade(self) -> None:
        """Record since when the upgrade has its policy and weight, and whether a gate ended it."""
        now, pending = (
            self._sim.clock.monotonic(),
            self._sim.pending if self._sim.has_service else "",
        )
        policy = self._sim.policy if pending else ""
        if policy != self._policy_at[0]:
            self._policy_at = policy, now if self._policy_at[0] else -MAX_PASS
        at = pending, self._sim.weights.get(pending, 0), self._sim.deployed(pending)
        in_steps = self._sim.has_service and self._sim.view.capacities[1] is not None
        if at != self._weighed[0] and (
            self._sim.weights or not in_steps
        ):  # without its route for a while it keeps its step
            head = self._sim.model(pending) if pending in self._sim.clusters else None
            # in steps those that Ray has exported by then; all of a cluster that has no traffic yet count before it gets all at once
            counted = (
                Count()
                if head is None or not in_steps
                else Count(all=head.shown.all, well=head.shown.well)
            )
            self._weighed = at, now, counted
        if (
            self._sim.has_service
            and self._is_failed()
            and self._sim.status.get("observedGeneration") == self._sim.generation
        ):
            spec: Json = msgspec.json.decode(policy)["spec"] if policy else {}
            first = (
                self._failed_for.setdefault(pending, self._sim.generation)
                if pending
                else self._sim.generation
            )
            if first == self._sim.generation:  # a later spec has an upgrade of its own
                self._failed_at.setdefault(self._sim.generation, spec.get("onFailure", "Rollback"))

    @of_objects
    def _is_failed(self) -> bool:
        """Return whether the record says that a gate ended the upgrade."""
        kinds = ("UpgradeAborted", "UpgradePaused")
        return self._sim.has_failed or ("True", "GateFailed") in map(self._sim.condition, kinds)

    def moment(self) -> Moment:
        return msgspec.structs.replace(
            super().moment(), carries={name: self._carries(name) for name in self._sim.clusters}
        )

    def check(self, actor: str, *, by_hand: bool = False) -> None:
        after = self.moment()
        stamp = self.state(actor)
        restored = {
            name
            for name, target in self._targets_before.items()
            if self._sim.model(name).target <= target
        }
        self._targets_before = {
            name: at for name, at in self._targets_before.items() if name not in restored
        }
        if not by_hand and self.counts_from is not None:
            for law, text in upgrade_states.of_a_change(self._moment, after, self._stamp, stamp):
                self.break_law(law, text.split()[0], text)
        self._moment, self._stamp = after, stamp
        self._note_names()
        self._note_upgrade()
        self._sim.trace.log_state(after, actor) if self._sim.trace.is_traced else None

    def state(self, actor: str) -> State:
        """Return the true state, as the laws need it."""
        now = self._sim.clock.monotonic()
        clusters = set(self._sim.clusters)
        has_service = self._sim.has_service
        names = sorted(clusters | set(self._sim.weights))
        pods = {
            name: self._sim.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
            .get("status", {})
            .get("phase")
            for name in names
        }
        return State(
            at=now,
            actor=actor,
            route=self._sim.weights if self._sim.route is not None else None,
            effective=[dict(each) for each in self._sim.effective_of.values()],
            carries={name: self._carries(name) for name in names},
            targets={
                name: self._sim.model(name).target
                for name in names
                if name in clusters and self._sim.model(name).puts
            },
            targets_before=dict(self._targets_before),
            surprised=frozenset(
                name for name, at in self._surprised_at.items() if now - at <= OBSERVED
            ),
            missing=frozenset(
                name for name in names if name not in clusters or pods[name] == "Failed"
            ),
            silent=frozenset(name for name in clusters if self._sim.model(name).behaviour != "ok"),
            unheard=self._unheard(now),
            autoscaled=frozenset(name for name in clusters if self._sim.model(name).is_autoscaled),
            follows={
                name: self._sim.model(name).follows
                for name in clusters
                if self._sim.model(name).is_autoscaled
            },
            in_steps=has_service and self._sim.view.capacities[1] is not None,
            active=self._sim.active if has_service else "",
            is_alone=has_service and self._sim.is_complete() and len(clusters) == 1,
            unserved=frozenset(name for name in clusters if self._is_unserved(name)),
            plain=self._plain(),
            deadline=self._deadline(),
            has_stalled=self.has_stalled,
            is_awaited=(f"{OTHER_NAME}{SERVE}", 1) if self._sim.draw.has_other_service else None,
            in_flight=frozenset(
                name
                for name in clusters
                if self._sim.model(name).ongoing
                and labels.DRAIN_TIMEOUT not in self._sim.annotations_now
            ),
            allowance=self._allowance(now),
            foreign=self._foreign(),
            unmet=self._unmet,
            is_failed=has_service and self._is_failed(),
            ended_by=self._ended_by() if has_service else "",
            proven_bad=frozenset(self._sim.sources.proven_bad),
            is_going=self._sim.is_going or not has_service,
            unharmed=frozenset(self._unharmed(now)),
            step=self._largest_step(now),
            promotes=labels.PROMOTE in self._sim.annotations_now,
            beside=self._beside(),
            twins_left=self._twins_left() if self._sim.draw.world.has_twins else None,
        )

    def _unharmed(self, now: float) -> Iterator[str]:
        """Yield the clusters that serve all that they are sent, and did so lately."""
        for name in self._sim.clusters:
            is_whole = self._carries(name) >= max(1, self._sim.weights.get(name, 0))
            is_there = "deletionTimestamp" not in self._sim.meta(name) and self._sim.has_ready_head(
                name
            )
            if is_whole and is_there and now - self._harmed_at.get(name, -HARMED) >= HARMED:
                yield name

    def _largest_step(self, now: float) -> int:
        """Return the largest step that the user allowed lately; all at once without steps."""
        options = self._sim.service.get("spec", {}).get("upgradeStrategy", {})
        options = options.get("clusterUpgradeOptions", {})
        size = options.get("stepSizePercent", upgrade_moments.WHOLE)
        if size == options.get("maxSurgePercent") == 0:  # the steps are what may be missing
            missing = int(self._sim.annotations_now.get(labels.MAX_UNAVAILABLE, 0))
            size = min(
                upgrade_moments.WHOLE,
                upgrade_moments.WHOLE * missing // (upgrade_moments.WHOLE - missing),
            )
        self._step_at[size] = now
        return max(each for each, at in self._step_at.items() if now - at <= upgrade_states.WINDOW)

    @of_objects
    def _beside(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of backend and route for users' requests beside the weighted route."""
        return tuple(self._refs_beside())

    def _refs_beside(self) -> Iterator[tuple[str, str]]:
        for (kind, _, name), body in self._sim.kube.objects.items():
            if kind not in {HTTP_ROUTE.kind, GRPC_ROUTE.kind} or not self._is_own(body):
                continue
            if kind == HTTP_ROUTE.kind and name in {OWN_ROUTE, f"{NAME}-httproute"}:
                continue
            for ref in (ref for rule in body["spec"]["rules"] for ref in rule["backendRefs"]):
                if ref.get("weight", 1):
                    yield name, ref["name"].removesuffix(SERVE)

    def _is_own(self, body: Body) -> bool:
        uid = self._sim.service["metadata"]["uid"] if self._sim.has_service else ""
        return any(each["uid"] == uid for each in body["metadata"].get("ownerReferences", []))

    def _twins_left(self) -> int:
        """Return the number of foreign backends with the names of ours in the user's route."""
        route = self._sim.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, OWN_ROUTE))
        rules_of: list[Json] = [] if route is None else route["spec"]["rules"]
        return sum(ref in TWINS for rule in rules_of for ref in rule.get("backendRefs", []))

    def _ended_by(self) -> str:
        """Return `onFailure` where a gate ended the upgrade to the spec as it is, and the user does
        not promote it nevertheless.
        """
        is_overruled = labels.PROMOTE in self._sim.annotations_now
        return "" if is_overruled else self._failed_at.get(self._sim.generation, "")

    def _is_unserved(self, name: str) -> bool:
        """Return whether a cluster with a head has no Serve config; a pending one gets none from a
        spec that is invalid (ADR 41).
        """
        head = self._sim.model(name)
        has_config = (
            bool(head.puts) or not self._sim.pending
        )  # no config fits a version never served
        is_needed = (name == self._sim.active and has_config) or (
            name == self._sim.pending and self._is_valid()
        )
        return (
            is_needed
            and head.behaviour == "ok"
            and self._sim.has_ready_head(name)
            and (head.has_forgotten or not head.puts)
        )

    @of_objects
    def _is_valid(self) -> bool:
        """Return whether the status reports the spec as valid."""
        return "spec is invalid" not in str(self._sim.status.get("conditions"))

    @of_objects
    def _plain(self) -> frozenset[str] | None:
        """Return the clusters that clients of the plain Service reach; None without such a Service."""
        name = f"{NAME}{SERVE}"
        slices = self._sim.kube.objects.get((ENDPOINT_SLICE.kind, NAMESPACE, f"{name}-1"))
        if slices is None or (SERVICE.kind, NAMESPACE, name) not in self._sim.kube.objects:
            return None
        ready = [each for each in slices["endpoints"] if each["conditions"]["ready"]]
        uids = {each["targetRef"]["uid"] for each in ready}
        pods = self._sim.kube.all(POD)
        return frozenset(
            each["metadata"]["labels"][labels.CLUSTER]
            for each in pods
            if each["metadata"]["uid"] in uids
        )

    def _deadline(self) -> float:
        text = self._sim.annotations_now.get(labels.PROGRESS_DEADLINE, "600")
        return float(text) if text.isdigit() else 600.0

    def _carries(self, name: str) -> int:
        if (RAY_CLUSTER.kind, NAMESPACE, name) not in self._sim.kube.objects:
            return 0
        phase = (
            self._sim.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
            .get("status", {})
            .get("phase")
        )
        is_lost = self._unready_for(name, self._sim.clock.monotonic()) >= UNREADY
        return self._sim.model(name).carries if phase == "Running" and not is_lost else 0

    def _allowance(self, now: float) -> int:
        text = self._sim.annotations_now.get(labels.MAX_UNAVAILABLE, "0")
        allowed = int(text) if text.isdigit() else 0
        self._allowed_at[allowed] = now
        return max(
            each for each, at in self._allowed_at.items() if now - at <= upgrade_states.MEMORY
        )

    @of_objects
    def _foreign(self) -> tuple[tuple[str, int], ...]:
        route = self._sim.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, OWN_ROUTE))
        if route is None:
            return ()
        refs = [ref for rule in route["spec"]["rules"] for ref in rule.get("backendRefs", [])]
        return tuple(
            (ref["name"], ref["weight"]) for ref in refs if ref["name"].startswith(OTHER_NAME)
        )

    def passed(self, seconds: float) -> None:
        """Let the laws count durations."""
        if self.counts_from is None:
            return
        now = self._sim.clock.monotonic()
        stamp = self._stamp = self.state("time")
        if self._sim.condition("UpgradeStalled")[0] == "True" if not stamp.is_going else False:
            self.has_stalled = True
        are_well = self._are_well()
        for law, subject, text in upgrade_states.of_time(
            self.timers, stamp, seconds, is_excused=not are_well
        ):
            self.break_law(law, subject, text)
        for law, subject, text in upgrade_states.of_side_routes(
            self.timers, stamp, seconds, is_excused=not (are_well or self._guards())
        ):
            self.break_law(law, subject, text)
        for law, subject, text in upgrade_states.of_serving(
            self.timers, stamp, seconds, is_excused=not self._may_serve()
        ):
            self.break_law(law, subject, text)
        for law, subject, text in (
            *self._ending(seconds, are_well),
            *self._standing(seconds, are_well),
        ):
            self.break_law(law, subject, text)
        others = dict(self._versions()) if not stamp.is_going else {}
        for name, text in others.items():
            if (
                self.timers.lasts(("version", name), seconds, holds=True, is_excused=not are_well)
                > upgrade_states.STABLE_AFTER
            ):
                self.break_law("version", name, text)
        self.timers.keep("version", set(others))
        self._count_hot(now)

    def _ending(self, seconds: float, are_well: bool) -> Iterator[tuple[str, str, str]]:
        """Yield a deletion, or a suspension, that does not end."""
        service, ending = self._sim.service, ""
        if service and "deletionTimestamp" in service["metadata"]:
            ending = "deletion"
        elif (
            service.get("spec", {}).get("suspend") and self._sim.condition("Suspended")[0] != "True"
        ):
            ending = "suspension"
        for what in ("deletion", "suspension"):
            lasts = self.timers.lasts(
                ("ends", what), seconds, holds=what == ending, is_excused=not are_well
            )
            if lasts > upgrade_states.GOES:
                left = [
                    *self._sim.clusters,
                    *(each["metadata"]["name"] for each in self._sim.kube.all(SERVICE)),
                ]
                yield "ends", what, f"its {what} does not end; there are {left}: {self._sim.status}"

    def _standing(self, seconds: float, are_well: bool) -> Iterator[tuple[str, str, str]]:
        """Yield an upgrade in which nothing moves although its user asks for it, and nothing says
        why.
        """
        still, pending = self._still, self._sim.pending
        puts = {name: len(self._sim.model(name).puts) for name in self._sim.clusters}
        shape = (
            self._sim.active,
            pending,
            self._sim.weights,
            puts,
            self._sim.generation,
            tuple(self._sim.annotations_now),
        )
        if shape != still.shape:
            self._still = still = _Still(shape=shape, number=still.number + 1)
        active = self._sim.kube.objects.get((RAY_CLUSTER.kind, NAMESPACE, self._sim.active))
        is_asked = (
            bool(self._sim.goals)
            and active is not None
            and upgrade_requests.essence(active) != self._goal()
        )
        is_wanting = not self._sim.is_going and (bool(pending) or is_asked)
        holds = is_wanting and not still.is_named and not self._is_named()
        limit = self._deadline() + self._sim.setting.interval + 2 * STANDS if pending else STANDS
        lasts = self.timers.lasts(
            ("named", str(still.number)), seconds, holds=holds, is_excused=not are_well
        )
        if lasts > limit:
            yield "named", "the upgrade", f"nothing moves for {lasts:.0f} s, and nothing says why"

    @of_objects
    def _goal(self) -> tuple[str, int]:
        config = self._sim.service["spec"]["rayClusterConfig"]
        return upgrade_requests.essence({"spec": config})

    def _is_named(self) -> bool:
        """Return whether the status says why the upgrade stands still."""
        kinds = ("UpgradeStalled", "UpgradePaused", "UpgradeAborted", "ClusterSpecIgnored")
        if (
            any(self._sim.condition(each)[0] == "True" for each in kinds)
            or not self._sim.is_ready()
        ):
            return True
        conditions: list[Json] = self._sim.status.get("conditions", [])
        messages = {condition["type"]: condition["message"] for condition in conditions}
        text = messages.get("UpgradeInProgress", "")
        return text.startswith(BOTH) and text.rstrip(".") != BOTH

    def note_sickness(self) -> None:
        """Record which clusters cannot serve, before a service observes it and acts."""
        for name in self._sim.clusters:
            carries, is_ready = self._carries(name) > 0, self._sim.has_ready_head(name)
            self._were_ready |= {name} if carries and is_ready else set()
            is_down = name in self._were_ready and not (
                is_ready and (carries or not self._sim.model(name).target)
            )
            head, now = self._sim.model(name), self._sim.clock.monotonic()
            if head.is_sick or is_down:
                self._sick_at[name] = now
            if is_down or head.app_state is not None or self._lacks(name):
                self._harmed_at[name] = now

    def _unheard(self, now: float) -> frozenset[str]:
        """Return the clusters that were silent, or whose caller was too late, until recently."""
        for name in self._sim.clusters:
            if self._sim.starved or self._sim.model(name).behaviour != "ok":
                self._silent_at[name] = now
        lasts = OBSERVED + 2 * self._sim.draw.setting.slow
        return frozenset(name for name, at in self._silent_at.items() if now - at <= lasts)

    def _unready_for(self, name: str, now: float) -> float:
        """Return the seconds for which a cluster's worker has taken no requests."""
        if not self._takes_no_requests(name):
            self._unready_since.pop(name, None)
            return 0.0
        return now - self._unready_since.setdefault(name, now)

    def _takes_no_requests(self, name: str) -> bool:
        """Return whether a cluster's worker should take requests and is not ready."""
        status = self._sim.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {}).get(
            "status", {}
        )
        is_unready = any(each["status"] != "True" for each in status.get("conditions", []))
        return is_unready and self._sim.draw.world.proxy_location == "EveryNode"

    def _lacks(self, name: str) -> bool:
        """Return whether a cluster carries less than it is sent, or its pods take no requests."""
        return self._takes_no_requests(name) or self._carries(name) < self._sim.weights.get(name, 0)

    def _may_serve(self) -> bool:
        """Return whether the writer of Serve configs runs, receives changes, and may record them;
        routing is not checked.
        """
        if self._sim.clock.monotonic() - self.struck_at <= REPEAT:
            return False
        text = "" if self._sim.refusal_of is None else self._sim.refused_kind
        is_free = text in {"", HTTP_ROUTE.kind, GATEWAY.kind}
        return is_free and self._are_well(may_be_refused=True)

    def _are_well(self, *, may_be_refused: bool = False, may_be_silent: bool = False) -> bool:
        """Return whether both services run, receive changes, may write, and wait for nothing.

        The exceptions: refused writes of a single kind, a silent bus.
        """
        return (
            (may_be_silent or not self._sim.bus.is_silent)
            and (may_be_refused or self._sim.refusal_of is None)
            and not self._sim.starved
            and self._sim.refusal is None
            and not self._sim.loses_answers
            and not any(each.lag or each.is_down for each in self._sim.services.values())
            and not self.waits()
            and all(gates == BETA for gates in self._sim.gates_of.values())
        )

    def _guards(self) -> bool:
        """Return whether traffic-manager guards an upgrade while the bus is silent."""
        is_guarding = self._sim.bus.is_silent and not self._sim.is_blind
        return is_guarding and self._are_well(may_be_silent=True)

    def _versions(self) -> Iterator[tuple[str, str]]:
        """Yield clusters that run something else than what is recorded.

        An intent without an outcome leaves open whether Ray carried it out, so what was recorded
        before it counts as well, down to what Ray accepted (ADR 5); what Ray refused does not.
        """
        for name in self._sim.clusters:
            head = self._sim.model(name)
            if (
                not head.puts
                or head.behaviour != "ok"
                or head.has_forgotten
                or not self._sim.has_ready_head(name)
            ):
                continue
            recorded = self._recorded(name)
            runs = config_of(head.puts[-1])
            if recorded and runs not in recorded:
                yield (
                    name,
                    f"{name} runs {short(runs)} and the record contains {', '.join(map(short, sorted(recorded)))}",
                )

    @of_objects
    def _recorded(self, name: str) -> set[str]:
        uid = self._sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, name)]["metadata"]["uid"]
        revisions = [
            msgspec.convert(each, Revision)
            for each in self._sim.kube.all(CONTROLLER_REVISION)
            if each["metadata"]["labels"].get(revision.RECORD) == revision.SERVE_CONFIG
            and each["metadata"]["ownerReferences"][0]["uid"] == uid
        ]
        newest_first = sorted(
            revisions, key=lambda each: (each.revision, each.metadata.name), reverse=True
        )
        possible = revision.open_ones(newest_first)
        return {
            read_config(each.data.serve_config)
            for each in possible
            if each.outcome is not SendOutcome.REFUSED
        }

    def _note_names(self) -> None:
        """When a cluster is named pending, remember what the active one may be given until the end."""
        if not self._sim.has_service or self._sim.pending == self._pending_seen:
            return
        self._pending_seen = self._sim.pending
        self._goals_seen = len(self._sim.goals)
        self.complete_configs = {}
        active = self._sim.active
        if self._sim.pending and active in self._sim.clusters and self._sim.model(active).puts:
            own_image = image_of(
                self._sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, active)]["spec"]
            )
            wanted = [read_config(serve) for image, serve in self._sim.goals if image == own_image][
                -1:
            ]
            runs = config_of(self._sim.model(active).puts[-1])
            self.complete_configs = {active: frozenset({runs, *wanted})}

    def note_put(self, what: str) -> None:
        if what.startswith("after"):
            cluster = what.removeprefix("after put ").removesuffix("-head-svc")
            self._puts_at.setdefault(cluster, []).append(self._sim.clock.monotonic())
            self._judge_config(cluster)

    def _judge_config(self, cluster: str) -> None:
        allowed = self.complete_configs.get(cluster)
        if (
            allowed is None
            or not self._sim.is_reconciling
            or cluster != self._sim.active
            or not self._sim.pending
        ):
            return
        new = config_of(self._sim.model(cluster).puts[-1])
        if new not in allowed | self._reverted_configs(cluster):
            text = f"{cluster} is active in an upgrade and was given {short(new)} instead of {short(min(allowed))}"
            self.break_law("frozen", cluster, text)

    def _reverted_configs(self, cluster: str) -> frozenset[str]:
        """Return the Serve configs that came with a spec that is the cluster's own, after another
        one was named.

        Such a spec ends a blue/green upgrade in the reconcile that sends its config: nothing was
        sent to the other cluster, so there is nothing to wait for, and the status shows the end
        right after. In steps the status shows the end first.
        """
        if self._sim.view.capacities[1] is not None:
            return frozenset()
        own_image = image_of(self._sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster)]["spec"])
        return frozenset(
            read_config(serve)
            for image, serve in self._sim.goals[self._goals_seen :]
            if image == own_image
        )

    def judge_request(self, request: Request) -> None:
        if request.kind == "Event":
            self._still.is_named |= (
                request.body is not None and request.body.get("type") == "Warning"
            )
            return
        sent = SentRequest(
            request=request, objects=self._sim.kube.objects, service=NAME, is_whole=self._is_whole
        )
        for each in find_broken(REQUEST_LAWS, sent):
            self.break_law(each.law, each.subject, each.text)
        if request.kind == POD.kind and self._is_withdrawn(request):
            text = f"{request.name} is to get no requests, and its proxy has been healthy all along"
            self.break_law("withdrawn", request.name, text)

    def _is_withdrawn(self, request: Request) -> bool:
        """Return whether a write keeps requests from the head of a cluster that serves well."""
        body: Json = request.body or {}
        wanted: Json = body.get("metadata", {}).get("labels") or {}
        cluster = request.name.removesuffix("-head")
        if wanted.get(labels.SERVE) != "false" or cluster not in self._sim.clusters:
            return False
        head = self._sim.model(cluster)
        takes = head.proxy_is_healthy and head.listens(self._sim.draw.world.port, on_head=True)
        return takes and cluster in set(self._unharmed(self._sim.clock.monotonic()))

    def _is_whole(self, name: str) -> bool:
        """Return whether a cluster could serve again; one that a gate found bad is not asked to."""
        self.note_active()
        if name in self._failed_for or not self._sim.has_ready_head(name):
            return False
        if name != self._replaced or self._is_newer(name):  # only the older one returns (ADR 44)
            return False
        pod = self._sim.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
        is_sick = self._sim.clock.monotonic() - self._sick_at.get(name, -HARMED) < HARMED
        return pod.get("status", {}).get("phase") == "Running" and not is_sick

    def note_active(self) -> None:
        active = self._sim.active if self._sim.has_service else ""
        if active not in {"", self._active_seen}:
            self._replaced, self._active_seen = self._active_seen, active

    def _is_newer(self, name: str) -> bool:
        """Return whether a cluster was created after the active one."""
        if self._sim.active not in self._sim.clusters:
            return False
        moments = [self._sim.meta(each)["creationTimestamp"] for each in (name, self._sim.active)]
        return moments[0] > moments[1]

    def _count_hot(self, now: float) -> None:
        self._writes_at = [each for each in self._writes_at if now - each <= upgrade_states.WINDOW]
        if len(self._writes_at) > upgrade_states.MAX_WRITES:
            self.break_law(
                "hot", "kube", f"{len(self._writes_at)} writes within {upgrade_states.WINDOW:g} s"
            )
        for name, times in self._puts_at.items():
            times[:] = [each for each in times if now - each <= upgrade_states.WINDOW]
            if len(times) > upgrade_states.MAX_PUTS:
                self.break_law(
                    "hot", name, f"{name} got {len(times)} PUTs within {upgrade_states.WINDOW:g} s"
                )
            if len(times) > 3 * upgrade_states.MAX_PUTS:
                raise NeverRests

    def break_law(self, law: str, subject: str, text: str) -> None:
        if self.counts_from is None or (law, subject) in self.found:
            return
        self.found[law, subject] = f"t+{self._sim.clock.monotonic():.2f} {text}"
        self._sim.trace.log(f"BROKEN [{law}]: {text}")
