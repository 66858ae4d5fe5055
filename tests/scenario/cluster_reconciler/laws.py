"""What must be true of one RayCluster whatever happens: at every write, at rest, and after it.

`Laws` gets each request to the API server and each object in it, and raises `Violation` for what must not be. It works out what a
spec means by itself, and shares no code with what it judges (spec raycluster §9, §13, §22).
"""

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, cast

from common import labels
from common.api.opaque import Body
from common.kube.resources import POD, Resource
from support.fakes.kube import Request

Objects = Mapping[tuple[str, str, str], Body]
Place = tuple[str, str, str]

HEAD: Final = "headgroup"
RAY_CONTAINERS: Final = {"ray-head", "ray-worker"}
"""Ray's container in the templates, wherever it stands in a pod."""
GANGS: Final = frozenset({"PodGroup", "Workload"})
MANAGER: Final = "kueue.x-k8s.io/multikueue"


class Violation(AssertionError):
    """A law was broken."""


class Laws:
    """The laws of one cluster, and what they have to remember."""

    def __init__(self) -> None:
        self.changes = 0
        """How often an object has changed."""
        self.tombstones: dict[Place, int] = {}
        """Deleted objects, and since when: what the stream still delivers."""
        self.two_at_once = False
        """Whether two owners have worked at the same time since the last rest: they may waste work."""
        self._specs: list[Body] = []
        """The specs since the last rest, what was asked for then included; a late owner may act on any of them."""
        self._most: Counter[str] = Counter()
        """Pods of each group at the last rest."""
        self._asked: set[str] = set()
        """Pods that the current reconcile has deleted."""
        self.reasons: set[str] = set()
        """Reasons of all Events that an owner has written."""
        self.is_deleted = False
        """Whether the cluster was deleted since the last rest."""
        self.gone_after: timedelta | None = None
        """How long the last deletion of the cluster took."""
        self._is_gang = False
        """Whether the cluster is a gang of a batch scheduler that has an object for it."""
        self._strangers: dict[Place, Body] = {}
        """Objects of others."""

    # --- input ----------------------------------------------------------------------------------------------------------

    def wants(self, spec: Body, *, is_gang: bool = False) -> None:
        """Take note of what a user or the autoscaler asks for."""
        self._specs.append(spec)
        self._is_gang = is_gang

    def knows(self, stranger: Body) -> None:
        """Take note of an object of another owner, as the API server stores it."""
        meta = stranger["metadata"]
        place = (stranger["kind"], meta["namespace"], meta["name"])
        self._strangers[place] = copy.deepcopy(stranger)

    def see(self, kind: str, body: Body, is_gone: bool, now: datetime) -> None:
        """Take note of a change."""
        self.changes += 1
        meta = body["metadata"]
        if is_gone and kind == "RayCluster" and "deletionTimestamp" in meta:
            self.gone_after = now - datetime.fromisoformat(meta["deletionTimestamp"])
        if is_gone:
            self.tombstones[kind, meta["namespace"], meta["name"]] = int(meta["resourceVersion"])

    def reconcile_begins(self) -> None:
        """Note that an owner starts a reconcile."""
        self._asked.clear()

    # --- at every write ------------------------------------------------------------------------------------------------

    def watch(self, verb: str, resource: Resource, name: str, objects: Objects) -> None:
        """Judge a request that the API server is about to carry out."""
        if resource != POD:
            return
        match verb:
            case "create":
                self._judge_creation(name, objects)
            case "delete":
                self._judge_deletion(name, objects)
                self._asked.add(name)
            case "deletecollection":
                self._judge_end_of_all()
            case _:
                pass

    def _judge_creation(self, name: str, objects: Objects) -> None:
        if ("Pod", "ns", name) in self.tombstones and not self.two_at_once:
            raise Violation(f"the name {name} comes back")

    def _judge_deletion(self, name: str, objects: Objects) -> None:
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
        raise Violation(f"{name} goes, which nobody named, while the autoscaler is on")

    def _judge_end_of_all(self) -> None:
        is_asked = any(spec.get("suspend") for spec in self._specs)
        is_replaced = any(
            spec.get("upgradeStrategy", {}).get("type") == "Recreate" for spec in self._specs
        )
        if not is_asked and not is_replaced and not self.is_deleted:
            raise Violation("all pods go, and nobody asked for it")

    def judge_numbers(self, objects: Objects) -> None:
        """Judge how many pods there are, at any moment."""
        alive = Counter(_label(pod, labels.GROUP) for pod in _alive(objects))
        for group, number in alive.items():
            wanted = max((target(spec, group) for spec in self._specs), default=0)
            if number > max(wanted, self._most[group]):
                raise Violation(
                    f"{number} pods of group {group}, where at most {wanted} were asked for"
                )

    # --- at rest -------------------------------------------------------------------------------------------------------

    def with_lost_nodes(self, objects: Objects) -> None:
        """Judge the state at rest while pods of lost nodes stay Terminating."""
        cluster, spec = objects.get(("RayCluster", "ns", "c")), self._specs[-1]
        if cluster is None or spec.get("managedBy") == MANAGER or not _going(objects):
            return
        if "PodsNotEnding" not in self.reasons:
            raise Violation("pods do not end, and no Event names them")
        is_head_lost = any(_label(pod, labels.GROUP) == HEAD for pod in _going(objects))
        if is_head_lost or is_flawed(spec) or _is_suspended(cluster) or spec.get("suspend"):
            return
        found = Counter(_label(pod, labels.GROUP) for pod in _alive(objects))
        for group in spec["workerGroupSpecs"]:
            self._judge_group(spec, group, found[group["groupName"]])

    def at_rest(self, objects: Objects) -> None:
        """Judge what there is when nothing is left to do; the next phase starts here."""
        self._judge_strangers(objects)
        cluster, pods = objects.get(("RayCluster", "ns", "c")), own_pods(objects)
        spec = self._specs[-1]
        if cluster is None:
            self._judge_end(pods)
        elif cluster["spec"] != spec:
            raise Violation("the spec was changed by an operator")
        elif is_flawed(spec):
            self._judge_flawed(spec, cluster, pods)
        else:
            self._judge_whole(spec, cluster, pods)
            self._judge_gang(cluster, objects)
            if not _is_suspended(cluster):
                _judge_selectors(objects)
        self._specs = [spec]
        self._most = Counter(_label(pod, labels.GROUP) for pod in pods)
        self.two_at_once, self.is_deleted, self.gone_after = False, False, None

    def _judge_strangers(self, objects: Objects) -> None:
        for place, body in self._strangers.items():
            if objects.get(place) != body:
                raise Violation(f"{place[0]} {place[2]} of another owner was touched")

    def _judge_end(self, pods: list[Body]) -> None:
        """Judge a cluster that is gone."""
        if pods:
            raise Violation("the cluster is gone, and pods are left")

    def _judge_flawed(self, spec: Body, cluster: Body, pods: list[Body]) -> None:
        """Judge a cluster with a refused spec: an Event names the reason, and suspension works."""
        if spec.get("managedBy") == MANAGER:
            return
        if "InvalidRayClusterSpec" not in self.reasons:
            raise Violation("the spec is not valid, and no Event names the reason")
        if spec.get("suspend") and (pods or not _is_suspended(cluster)):
            raise Violation("a cluster that is not valid is to be suspended and is not")

    def _judge_gang(self, cluster: Body, objects: Objects) -> None:
        """Judge that a gang has room reserved while it has pods, and none when it is suspended."""
        kept = {kind for kind, _, name in objects if kind in GANGS and name.endswith(("c", "c-pg"))}
        if _is_suspended(cluster) and kept:
            raise Violation(f"a suspended cluster keeps its {sorted(kept)}")
        if self._is_gang and not _is_suspended(cluster) and not kept:
            raise Violation("the pods of a gang are made without its PodGroup")

    def _judge_whole(self, spec: Body, cluster: Body, pods: list[Body]) -> None:
        held = _held(cluster)
        if "ReplicaFailure" in held:
            raise Violation("ReplicaFailure is reported of a cluster that has all that it asks for")
        self._judge_pods(spec, pods, is_suspended=_is_suspended(cluster))
        _judge_versions(spec, pods)
        _judge_places(spec, pods)
        _judge_status(spec, pods, cluster["status"], held)

    def _judge_pods(self, spec: Body, pods: list[Body], *, is_suspended: bool) -> None:
        if spec.get("suspend") and not is_suspended:
            raise Violation("the cluster is to be suspended and is not")
        if spec.get("suspend") is False and is_suspended:
            raise Violation("the cluster is to be resumed and is not")
        known = {HEAD, *(group["groupName"] for group in spec["workerGroupSpecs"])}
        if lost := [
            pod["metadata"]["name"]
            for pod in pods
            if is_lost(pod) and _label(pod, labels.GROUP) in known
        ]:
            raise Violation(f"{lost} cannot recover and stay")
        found = Counter(_label(pod, labels.GROUP) for pod in pods)
        if is_suspended:
            if pods:
                raise Violation(f"a suspended cluster has pods: {dict(found)}")
            return
        if found[HEAD] != 1:
            raise Violation(f"{found[HEAD]} heads")
        for group in spec["workerGroupSpecs"]:
            self._judge_group(spec, group, found[group["groupName"]])
            if named := set(_named(group)) & {pod["metadata"]["name"] for pod in pods}:
                raise Violation(f"{named} were named to go and stay")

    def _judge_group(self, spec: Body, group: Body, found: int) -> None:
        name = group["groupName"]
        wanted = target(spec, name)
        most = wanted
        if spec.get("enableInTreeAutoscaling"):  # a surplus stays until the autoscaler names it
            most = max([self._most[name], *(target(each, name) for each in self._specs)])
        if not wanted <= found <= most:
            raise Violation(f"{found} pods of group {name}, where {wanted} are asked for")

    def quiet(self, requests: Iterable[Request]) -> None:
        """Judge what was asked of the API server when there was nothing to do."""
        reads = {"get", "list"}
        is_refused = any(map(is_flawed, self._specs))  # which each replica reports once
        written = [
            str(each)
            for each in requests
            if each.verb not in reads and not (is_refused and each.kind == "Event")
        ]
        if written:
            raise Violation(f"written without need: {written}")


def target(spec: Body, name: str) -> int:
    """Return how many pods a group should have by a spec."""
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
    """Return whether nothing is made of a spec: it is not valid, or another controller's."""
    groups = spec.get("workerGroupSpecs")
    return (
        spec.get("managedBy") == MANAGER
        or spec.get("upgradeStrategy", {}).get("type", "None") not in {"None", "Recreate"}
        or not isinstance(groups, list)
        or any(group["minReplicas"] > group["maxReplicas"] for group in _groups(spec))
    )


def hosts(group: Body) -> int:
    """Return the pods of a replica; a field that an old CRD has pruned means one."""
    return group.get("numOfHosts") or 1


def is_lost(pod: Body) -> bool:
    """Return whether a pod cannot recover: it has ended, or Ray has, whatever runs beside it."""
    status = pod.get("status", {})
    if status.get("phase") in {"Failed", "Succeeded"}:
        return True
    statuses: list[Body] = status.get("containerStatuses", [])
    has_ended = any(
        "terminated" in each.get("state", {}) and each["name"] in RAY_CONTAINERS
        for each in statuses
    )
    return has_ended and pod["spec"].get("restartPolicy") == "Never"


def _judge_versions(spec: Body, pods: list[Body]) -> None:
    """Judge that all pods are of the current spec, if it is one that replaces them all at once."""
    if spec.get("upgradeStrategy", {}).get("type") != "Recreate":
        return
    wanted = {
        HEAD: _image(spec["headGroupSpec"]["template"]),
        **{each["groupName"]: _image(each["template"]) for each in spec["workerGroupSpecs"]},
    }
    for pod in pods:
        if _image(pod) != wanted.get(_label(pod, labels.GROUP), _image(pod)):
            raise Violation(f"{pod['metadata']['name']} has the image of an old spec")


def _image(template: Body) -> str:
    containers = template["spec"]["containers"]
    return next(each["image"] for each in containers if each["name"] in RAY_CONTAINERS)


def _judge_selectors(objects: Objects) -> None:
    """Judge that the Service of a head selects it."""
    selector = objects["Service", "ns", "c-head-svc"]["spec"]["selector"]
    heads = [pod for pod in own_pods(objects) if _label(pod, labels.GROUP) == HEAD]
    if heads and not any(selector.items() <= pod["metadata"]["labels"].items() for pod in heads):
        raise Violation(f"the head Service selects nothing: {selector}")


def _judge_places(spec: Body, pods: list[Body]) -> None:
    """Indexes are unique in a group, and replicas of several hosts are whole."""
    for group in spec["workerGroupSpecs"]:
        members = [pod for pod in pods if _label(pod, labels.GROUP) == group["groupName"]]
        if hosts(group) == 1:
            _judge_unique(
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
                raise Violation(f"replica {replica} has the hosts {places}")
        _judge_unique(f"group {group['groupName']}", indexes)


def _judge_unique(where: str, indexes: Iterable[str]) -> None:
    if twice := [index for index, number in Counter(indexes).items() if number > 1]:
        raise Violation(f"{where} has the indexes {twice} more than once")


def _judge_status(spec: Body, pods: list[Body], status: Body, held: set[str]) -> None:
    workers = [pod for pod in pods if _label(pod, labels.NODE_TYPE) == labels.WORKER]
    running = [pod for pod in workers if pod["status"]["phase"] == "Running"]
    wanted = sum(target(spec, group["groupName"]) for group in spec["workerGroupSpecs"])
    counted = (status.get("availableWorkerReplicas", 0), status.get("desiredWorkerReplicas", 0))
    if counted != (len(running), wanted):
        raise Violation(
            f"the status counts {counted} workers, where {(len(running), wanted)} are right"
        )
    if "RayClusterSuspended" in held or any(
        map(is_lost, pods)
    ):  # a lost pod of a group that left the spec stays
        return
    if not {"HeadPodReady", "RayClusterProvisioned"} <= held:
        raise Violation(f"all pods run, and the conditions are {sorted(held)}")
    if len(pods) == wanted + 1 and status.get("state") != "ready":
        raise Violation(f"all pods run, and the state is {status.get('state')!r}")


def own_pods(objects: Objects) -> list[Body]:
    """Return the pods of the cluster, by name."""
    return [
        body
        for (kind, _, _), body in sorted(objects.items(), key=lambda item: item[0])
        if kind == "Pod" and _label(body, labels.CLUSTER) == "c"
    ]


def is_owned(body: Body) -> bool:
    """Return whether an object has an owner, as all that operators make here."""
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
