"""Laws of one RayCluster, which must hold whatever happens: at every write, at rest, and after its
deletion.

`Laws` receives each request to the API server and each object in it, and raises `Violation` for a
broken law. It interprets specs by itself, and shares no code with the services that it judges (spec
raycluster §9, §13, §22).
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, cast

import msgspec

from common import labels
from common.api.opaque import Body
from common.kube.resources import POD, Resource
from support.fakes.kube import Request
from support.laws import Evidence, Law, find_broken

Objects = Mapping[tuple[str, str, str], Body]
Place = tuple[str, str, str]

HEAD: Final = "headgroup"
RAY_CONTAINERS: Final = {"ray-head", "ray-worker"}
"""Names of Ray's container in the templates, at any position in a pod."""
GANGS: Final = frozenset({"PodGroup", "Workload"})
MANAGER: Final = "kueue.x-k8s.io/multikueue"


class Violation(AssertionError):
    """A law was broken."""


class Laws:
    """The laws of one cluster, with the history that they need."""

    def __init__(self) -> None:
        self.changes = 0
        """Number of changes of objects so far."""
        self.tombstones: dict[Place, int] = {}
        """By deleted object: the resourceVersion of its deletion; the stream still delivers these
        deletions."""
        self.two_at_once = False
        """Whether two owners have worked at the same time since the last rest; they may then waste
        work."""
        self._specs: list[Body] = []
        """All specs since the last rest, including requested ones; a late owner may act on any of
        them."""
        self._most: Counter[str] = Counter()
        """Number of pods of each group at the last rest."""
        self._asked: set[str] = set()
        """Names of the pods that the current reconcile has deleted."""
        self.reasons: set[str] = set()
        """Reasons of all Events that an owner has written."""
        self.is_deleted = False
        """Whether the cluster was deleted since the last rest."""
        self.gone_after: timedelta | None = None
        """Duration of the last deletion of the cluster; None without one."""
        self._is_gang = False
        """Whether the cluster is a gang of a batch scheduler that has an object for it."""
        self._strangers: dict[Place, Body] = {}
        """Objects that belong to other owners."""

    # --- input ----------------------------------------------------------------------------------------------------------

    def wants(self, spec: Body, *, is_gang: bool = False) -> None:
        """Record a spec that a user or the autoscaler requests."""
        self._specs.append(spec)
        self._is_gang = is_gang

    def knows(self, stranger: Body) -> None:
        """Record an object of another owner, as the API server stores it."""
        meta = stranger["metadata"]
        place = (stranger["kind"], meta["namespace"], meta["name"])
        self._strangers[place] = copy.deepcopy(stranger)

    def see(self, kind: str, body: Body, is_gone: bool, now: datetime) -> None:
        """Record a change of an object."""
        self.changes += 1
        meta = body["metadata"]
        if is_gone and kind == "RayCluster" and "deletionTimestamp" in meta:
            self.gone_after = now - datetime.fromisoformat(meta["deletionTimestamp"])
        if is_gone:
            self.tombstones[kind, meta["namespace"], meta["name"]] = int(meta["resourceVersion"])

    def reconcile_begins(self) -> None:
        """Record that an owner starts a reconcile."""
        self._asked.clear()

    # --- at every write ------------------------------------------------------------------------------------------------

    def watch(self, verb: str, resource: Resource, name: str, objects: Objects) -> None:
        """Check a request that the API server is about to carry out."""
        if resource == POD:
            sent = PodRequest(memory=self, verb=verb, name=name, objects=objects)
            _hold(REQUEST_LAWS, sent)
            self._asked |= {name} if verb == "delete" else set()

    def judge_creation(self, name: str) -> Iterator[str]:
        if ("Pod", "ns", name) in self.tombstones and not self.two_at_once:
            yield f"the name {name} comes back"

    def judge_deletion(self, name: str, objects: Objects) -> Iterator[str]:
        pod = objects.get(("Pod", "ns", name))
        is_autoscaled = all(spec.get("enableInTreeAutoscaling") for spec in self._specs)
        if pod is None or self.is_deleted or not is_autoscaled:
            return
        replica = _label(pod, labels.REPLICA_NAME)
        together = [
            each
            for each in own_pods(objects)
            if replica and _label(each, labels.REPLICA_NAME) == replica
        ] or [pod]
        named = {each for spec in self._specs for group in _groups(spec) for each in _named(group)}
        if any(is_lost(each) or each["metadata"]["name"] in named for each in together):
            return
        # A host that does not end counts no more: the rest of its replica is replaced with it.
        alive = [each for each in together if not _is_going(each)]
        if replica and (
            self.two_at_once or len(alive) < _hosts(self._specs[-1], _label(pod, labels.GROUP))
        ):
            return
        yield f"{name} goes, which nobody named, while the autoscaler is on"

    def judge_end_of_all(self) -> Iterator[str]:
        is_asked = any(spec.get("suspend") for spec in self._specs)
        is_replaced = any(
            spec.get("upgradeStrategy", {}).get("type") == "Recreate" for spec in self._specs
        )
        if not is_asked and not is_replaced and not self.is_deleted:
            yield "all pods go, and nobody asked for it"

    def judge_numbers(self, objects: Objects) -> None:
        """Check the number of pods, at any moment."""
        _hold(MOMENT_LAWS, Moment(memory=self, objects=objects))

    def find_surplus(self, objects: Objects) -> Iterator[str]:
        alive = Counter(_label(pod, labels.GROUP) for pod in _alive(objects))
        for group, number in alive.items():
            wanted = max((target(spec, group) for spec in self._specs), default=0)
            if number > max(wanted, self._most[group]):
                yield f"{number} pods of group {group}, where at most {wanted} were asked for"

    # --- at rest -------------------------------------------------------------------------------------------------------

    def with_lost_nodes(self, objects: Objects) -> None:
        """Check the state at rest while pods of lost nodes stay Terminating."""
        _hold(LOST_NODE_LAWS, Moment(memory=self, objects=objects))

    def judge_lost_nodes(self, objects: Objects) -> Iterator[str]:
        cluster, spec = objects.get(("RayCluster", "ns", "c")), self._specs[-1]
        if cluster is None or spec.get("managedBy") == MANAGER or not _going(objects):
            return
        if "PodsNotEnding" not in self.reasons:
            yield "pods do not end, and no Event names them"
        is_head_lost = any(_label(pod, labels.GROUP) == HEAD for pod in _going(objects))
        if is_head_lost or is_flawed(spec) or _is_suspended(cluster) or spec.get("suspend"):
            return
        found = Counter(_label(pod, labels.GROUP) for pod in _alive(objects))
        for group in spec["workerGroupSpecs"]:
            yield from self._judge_group(spec, group, found[group["groupName"]])

    def at_rest(self, objects: Objects) -> None:
        """Check the state when there is nothing left to do; the next phase starts here."""
        _hold(REST_LAWS, Moment(memory=self, objects=objects))
        self._specs = self._specs[-1:]
        self._most = Counter(_label(pod, labels.GROUP) for pod in own_pods(objects))
        self.two_at_once, self.is_deleted, self.gone_after = False, False, None

    def judge_rest(self, objects: Objects) -> Iterator[str]:
        cluster, pods = objects.get(("RayCluster", "ns", "c")), own_pods(objects)
        spec = self._specs[-1]
        if cluster is None:
            yield from self._judge_end(pods)
        elif cluster["spec"] != spec:
            yield "the spec was changed by an operator"
        elif is_flawed(spec):
            yield from self._judge_flawed(spec, cluster, pods)
        else:
            yield from self._judge_whole(spec, cluster, pods)
            yield from self._judge_gang(cluster, objects)
            if not _is_suspended(cluster):
                yield from _judge_selectors(objects)

    def judge_strangers(self, objects: Objects) -> Iterator[str]:
        for place, body in self._strangers.items():
            if objects.get(place) != body:
                yield f"{place[0]} {place[2]} of another owner was touched"

    def _judge_end(self, pods: list[Body]) -> Iterator[str]:
        """Check that nothing is left of a deleted cluster."""
        if pods:
            yield "the cluster is gone, and pods are left"

    def _judge_flawed(self, spec: Body, cluster: Body, pods: list[Body]) -> Iterator[str]:
        """Check a cluster with a refused spec: an Event names the reason, and suspension works."""
        if spec.get("managedBy") == MANAGER:
            return
        if "InvalidRayClusterSpec" not in self.reasons:
            yield "the spec is not valid, and no Event names the reason"
        if spec.get("suspend") and (pods or not _is_suspended(cluster)):
            yield "a cluster that is not valid is to be suspended and is not"

    def _judge_gang(self, cluster: Body, objects: Objects) -> Iterator[str]:
        """Check that a gang has reserved resources while it has pods, and none when it is
        suspended.
        """
        kept = {kind for kind, _, name in objects if kind in GANGS and name.endswith(("c", "c-pg"))}
        if _is_suspended(cluster) and kept:
            yield f"a suspended cluster keeps its {sorted(kept)}"
        if self._is_gang and not _is_suspended(cluster) and not kept:
            yield "the pods of a gang are made without its PodGroup"

    def _judge_whole(self, spec: Body, cluster: Body, pods: list[Body]) -> Iterator[str]:
        held = _held(cluster)
        if "ReplicaFailure" in held:
            yield "ReplicaFailure is reported of a cluster that has all that it asks for"
        yield from self._judge_pods(spec, pods, is_suspended=_is_suspended(cluster))
        yield from _judge_versions(spec, pods)
        yield from _judge_places(spec, pods)
        yield from _judge_status(spec, pods, cluster["status"], held)

    def _judge_pods(self, spec: Body, pods: list[Body], *, is_suspended: bool) -> Iterator[str]:
        if spec.get("suspend") and not is_suspended:
            yield "the cluster is to be suspended and is not"
        if spec.get("suspend") is False and is_suspended:
            yield "the cluster is to be resumed and is not"
        known = {HEAD, *(group["groupName"] for group in spec["workerGroupSpecs"])}
        if lost := [
            pod["metadata"]["name"]
            for pod in pods
            if is_lost(pod) and _label(pod, labels.GROUP) in known
        ]:
            yield f"{lost} cannot recover and stay"
        found = Counter(_label(pod, labels.GROUP) for pod in pods)
        if is_suspended:
            if pods:
                yield f"a suspended cluster has pods: {dict(found)}"
            return
        if found[HEAD] != 1:
            yield f"{found[HEAD]} heads"
        for group in spec["workerGroupSpecs"]:
            yield from self._judge_group(spec, group, found[group["groupName"]])
            if named := set(_named(group)) & {pod["metadata"]["name"] for pod in pods}:
                yield f"{named} were named to go and stay"

    def _judge_group(self, spec: Body, group: Body, found: int) -> Iterator[str]:
        name = group["groupName"]
        wanted = target(spec, name)
        most = wanted
        if spec.get("enableInTreeAutoscaling"):  # a surplus stays until the autoscaler names it
            most = max([self._most[name], *(target(each, name) for each in self._specs)])
        if not wanted <= found <= most:
            yield f"{found} pods of group {name}, where {wanted} are asked for"

    def quiet(self, requests: Iterable[Request]) -> None:
        """Check the requests that were sent to the API server while there was nothing to do."""
        _hold(SILENCE_LAWS, Silence(memory=self, requests=tuple(requests)))

    def judge_silence(self, requests: Iterable[Request]) -> Iterator[str]:
        reads = {"get", "list"}
        is_refused = any(map(is_flawed, self._specs))  # which each replica reports once
        written = [
            str(each)
            for each in requests
            if each.verb not in reads and not (is_refused and each.kind == "Event")
        ]
        if written:
            yield f"written without need: {written}"


def target(spec: Body, name: str) -> int:
    """Return the number of pods that a group should have by a spec."""
    if is_flawed(spec):  # nothing new is made of it
        return 0
    if name == HEAD:
        return 1
    for group in spec["workerGroupSpecs"]:
        if group["groupName"] == name:
            least, most = group["minReplicas"], group["maxReplicas"]
            return (
                0
                if group.get("suspend")
                else min(max(group["replicas"], least), most) * hosts(group)
            )
    return 0


def is_flawed(spec: Body) -> bool:
    """Return whether operators make no objects of a spec, because it is invalid or belongs to
    another controller.
    """
    groups = spec.get("workerGroupSpecs")
    return (
        spec.get("managedBy") == MANAGER
        or spec.get("upgradeStrategy", {}).get("type", "None") not in {"None", "Recreate"}
        or not isinstance(groups, list)
        or any(group["minReplicas"] > group["maxReplicas"] for group in _groups(spec))
    )


def hosts(group: Body) -> int:
    """Return the number of pods in a replica; 1 if an old CRD has removed the field."""
    return group.get("numOfHosts") or 1


def is_lost(pod: Body) -> bool:
    """Return whether a pod cannot recover: the pod or its Ray container has ended."""
    status = pod.get("status", {})
    if status.get("phase") in {"Failed", "Succeeded"}:
        return True
    statuses: list[Body] = status.get("containerStatuses", [])
    has_ended = any(
        "terminated" in each.get("state", {}) and each["name"] in RAY_CONTAINERS
        for each in statuses
    )
    return has_ended and pod["spec"].get("restartPolicy") == "Never"


def _judge_versions(spec: Body, pods: list[Body]) -> Iterator[str]:
    """Check that all pods are of the current spec, if its change replaces all pods at once."""
    if spec.get("upgradeStrategy", {}).get("type") != "Recreate":
        return
    wanted = {
        HEAD: _image(spec["headGroupSpec"]["template"]),
        **{each["groupName"]: _image(each["template"]) for each in spec["workerGroupSpecs"]},
    }
    for pod in pods:
        if _image(pod) != wanted.get(_label(pod, labels.GROUP), _image(pod)):
            yield f"{pod['metadata']['name']} has the image of an old spec"


def _image(template: Body) -> str:
    containers = template["spec"]["containers"]
    return next(each["image"] for each in containers if each["name"] in RAY_CONTAINERS)


def _judge_selectors(objects: Objects) -> Iterator[str]:
    """Check that the head Service selects the head."""
    selector = objects["Service", "ns", "c-head-svc"]["spec"]["selector"]
    heads = [pod for pod in own_pods(objects) if _label(pod, labels.GROUP) == HEAD]
    if heads and not any(selector.items() <= pod["metadata"]["labels"].items() for pod in heads):
        yield f"the head Service selects nothing: {selector}"


def _judge_places(spec: Body, pods: list[Body]) -> Iterator[str]:
    """Check that indexes are unique in a group, and that replicas of several hosts are complete."""
    for group in spec["workerGroupSpecs"]:
        members = [pod for pod in pods if _label(pod, labels.GROUP) == group["groupName"]]
        if hosts(group) == 1:
            yield from _judge_unique(
                f"group {group['groupName']}",
                (_label(pod, labels.REPLICA_INDEX) for pod in members),
            )
            continue
        members.sort(key=lambda pod: _label(pod, labels.REPLICA_NAME))
        indexes: list[str] = []
        for replica, of_replica in groupby(
            members, key=lambda pod: _label(pod, labels.REPLICA_NAME)
        ):
            places = [
                (_label(pod, labels.REPLICA_INDEX), int(_label(pod, labels.HOST_INDEX)))
                for pod in of_replica
            ]
            index = places[0][0]
            indexes.append(index)
            if sorted(places) != [(index, host) for host in range(hosts(group))]:
                yield f"replica {replica} has the hosts {places}"
        yield from _judge_unique(f"group {group['groupName']}", indexes)


def _judge_unique(where: str, indexes: Iterable[str]) -> Iterator[str]:
    if twice := [index for index, number in Counter(indexes).items() if number > 1]:
        yield f"{where} has the indexes {twice} more than once"


def _judge_status(spec: Body, pods: list[Body], status: Body, held: set[str]) -> Iterator[str]:
    workers = [pod for pod in pods if _label(pod, labels.NODE_TYPE) == labels.WORKER]
    running = [pod for pod in workers if pod["status"]["phase"] == "Running"]
    wanted = sum(target(spec, group["groupName"]) for group in spec["workerGroupSpecs"])
    counted = (status.get("availableWorkerReplicas", 0), status.get("desiredWorkerReplicas", 0))
    if counted != (len(running), wanted):
        yield f"the status counts {counted} workers, where {(len(running), wanted)} are right"
    if "RayClusterSuspended" in held or any(
        map(is_lost, pods)
    ):  # a lost pod of a group that left the spec stays
        return
    if not {"HeadPodReady", "RayClusterProvisioned"} <= held:
        yield f"all pods run, and the conditions are {sorted(held)}"
    if len(pods) == wanted + 1 and status.get("state") != "ready":
        yield f"all pods run, and the state is {status.get('state')!r}"


def own_pods(objects: Objects) -> list[Body]:
    """Return the pods of the cluster, sorted by name."""
    return [
        body
        for (kind, _, _), body in sorted(objects.items(), key=lambda item: item[0])
        if kind == "Pod" and _label(body, labels.CLUSTER) == "c"
    ]


def is_owned(body: Body) -> bool:
    """Return whether an object has an owner, like all objects that operators make here."""
    return bool(body["metadata"].get("ownerReferences"))


def _alive(objects: Objects) -> list[Body]:
    return [pod for pod in own_pods(objects) if not _is_going(pod)]


def _going(objects: Objects) -> list[Body]:
    return [pod for pod in own_pods(objects) if _is_going(pod)]


def _groups(spec: Body) -> list[Body]:
    groups = spec["workerGroupSpecs"]
    return cast("list[Body]", groups) if isinstance(groups, list) else []


def _held(cluster: Body) -> set[str]:
    conditions = cluster.get("status", {}).get("conditions", [])
    return {each["type"] for each in conditions if each["status"] == "True"}


def _is_suspended(cluster: Body) -> bool:
    return "RayClusterSuspended" in _held(cluster)


def _label(pod: Body, label: str) -> str:
    return pod["metadata"]["labels"].get(label, "")


def _is_going(pod: Body) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _named(group: Body) -> list[str]:
    return group.get("scaleStrategy", {}).get("workersToDelete") or []


def _hosts(spec: Body, name: str) -> int:
    return next((hosts(group) for group in _groups(spec) if group["groupName"] == name), 1)


class PodRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request about a pod, before the API server carries it out."""

    memory: Laws
    verb: str
    name: str
    objects: Objects


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """All objects at one moment."""

    memory: Laws
    objects: Objects


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """All requests during a time in which there was nothing to do."""

    memory: Laws
    requests: tuple[Request, ...]


def _law(
    name: str, source: str, reads: str, check: Callable[[Evidence], Iterator[str]]
) -> Law[Evidence]:
    return Law(
        name=name,
        source=source,
        reads=reads,
        check=lambda evidence: (("the cluster", text) for text in check(evidence)),
    )


def _hold(laws: Sequence[Law[Evidence]], evidence: Evidence) -> None:
    for each in find_broken(laws, evidence):
        raise Violation(each.text)


def _of_verb(
    verb: str, check: Callable[[PodRequest], Iterator[str]]
) -> Callable[[PodRequest], Iterator[str]]:
    return lambda sent: check(sent) if sent.verb == verb else iter(())


REQUEST_LAWS: Final[tuple[Law[PodRequest], ...]] = (
    _law(
        "new names",
        "ADR 7",
        "the names of deleted pods",
        _of_verb("create", lambda sent: sent.memory.judge_creation(sent.name)),
    ),
    _law(
        "pods of the autoscaler",
        "raycluster §9",
        "the pods that the spec names, lost pods, whole replicas",
        _of_verb("delete", lambda sent: sent.memory.judge_deletion(sent.name, sent.objects)),
    ),
    _law(
        "the end of all pods",
        "raycluster §9",
        "suspends, Recreate upgrades, deletions",
        _of_verb("deletecollection", lambda sent: sent.memory.judge_end_of_all()),
    ),
)
"""Laws of each single request about a pod."""
MOMENT_LAWS: Final[tuple[Law[Moment], ...]] = (
    _law(
        "no more pods than asked for",
        "raycluster §9",
        "the living pods of each group",
        lambda moment: moment.memory.find_surplus(moment.objects),
    ),
)
"""Laws that must hold at every moment."""
LOST_NODE_LAWS: Final[tuple[Law[Moment], ...]] = (
    _law(
        "pods of lost nodes",
        "raycluster §9",
        "the pods that do not end, and the Events",
        lambda moment: moment.memory.judge_lost_nodes(moment.objects),
    ),
)
"""Laws of a cluster at rest while pods of lost nodes stay Terminating."""
REST_LAWS: Final[tuple[Law[Moment], ...]] = (
    _law(
        "objects of others",
        "threat model",
        "the objects of other owners",
        lambda moment: moment.memory.judge_strangers(moment.objects),
    ),
    _law(
        "the spec is met",
        "raycluster §9",
        "the cluster, its pods, its status and its Services",
        lambda moment: moment.memory.judge_rest(moment.objects),
    ),
)
"""Laws of a cluster at rest."""
SILENCE_LAWS: Final[tuple[Law[Silence], ...]] = (
    _law(
        "silence",
        "raycluster §14",
        "the writes at rest",
        lambda silence: silence.memory.judge_silence(silence.requests),
    ),
)
"""Laws of the requests after a cluster has come to rest."""
