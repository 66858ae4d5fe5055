"""What must be true of one RayCluster whatever happens: at every write, at rest, and after it.

`Laws` gets each request to the API server and each object in it, and raises `Violation` for what must not be. It works out what a
spec means by itself, and shares no code with what it judges (spec raycluster §9, §13, §22).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

from common import labels
from common.api.opaque import Body
from common.kube.resources import POD, Resource
from support.fakes.kube import Request

Objects = Mapping[tuple[str, str, str], Body]
Place = tuple[str, str, str]

HEAD: Final = "headgroup"


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

    # --- input ----------------------------------------------------------------------------------------------------------

    def wants(self, spec: Body) -> None:
        """Take note of what a user or the autoscaler asks for."""
        self._specs.append(spec)

    def see(self, kind: str, body: Body, is_gone: bool) -> None:
        """Take note of a change."""
        self.changes += 1
        meta = body["metadata"]
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
        if pod is None or not all(spec.get("enableInTreeAutoscaling") for spec in self._specs):
            return
        replica = _label(pod, labels.REPLICA_NAME)
        together = [
            each
            for each in _pods(objects)
            if replica and _label(each, labels.REPLICA_NAME) == replica
        ] or [pod]
        named = {
            each
            for spec in self._specs
            for group in spec["workerGroupSpecs"]
            for each in _named(group)
        }
        if any(is_lost(each) or each["metadata"]["name"] in named for each in together):
            return
        if replica and (
            self.two_at_once or len(together) < _hosts(self._specs[-1], _label(pod, labels.GROUP))
        ):
            return
        raise Violation(f"{name} goes, which nobody named, while the autoscaler is on")

    def _judge_end_of_all(self) -> None:
        is_asked = any(spec.get("suspend") for spec in self._specs)
        is_replaced = any(
            spec.get("upgradeStrategy", {}).get("type") == "Recreate" for spec in self._specs
        )
        if not is_asked and not is_replaced:
            raise Violation("all pods go, and nobody asked for it")

    def judge_numbers(self, objects: Objects) -> None:
        """Judge how many pods there are, at any moment."""
        alive = Counter(_label(pod, labels.GROUP) for pod in _pods(objects) if not _is_going(pod))
        for group, number in alive.items():
            wanted = max((target(spec, group) for spec in self._specs), default=0)
            if number > max(wanted, self._most[group]):
                raise Violation(
                    f"{number} pods of group {group}, where at most {wanted} were asked for"
                )

    # --- at rest -------------------------------------------------------------------------------------------------------

    def at_rest(self, objects: Objects) -> None:
        """Judge what there is when nothing is left to do; the next phase starts here."""
        cluster, pods = objects["RayCluster", "ns", "c"], _pods(objects)
        spec = self._specs[-1]
        if cluster["spec"] != spec:
            raise Violation("the spec was changed by an operator")
        held = {
            each["type"] for each in cluster["status"]["conditions"] if each["status"] == "True"
        }
        if "ReplicaFailure" in held:
            raise Violation("ReplicaFailure is reported of a cluster that has all that it asks for")
        self._judge_pods(spec, pods, is_suspended="RayClusterSuspended" in held)
        _judge_places(spec, pods)
        _judge_status(spec, pods, cluster["status"], held)
        self._specs = [spec]
        self._most = Counter(_label(pod, labels.GROUP) for pod in pods)
        self.two_at_once = False

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
        written = [str(each) for each in requests if each.verb not in {"get", "list"}]
        if written:
            raise Violation(f"written without need: {written}")


def target(spec: Body, name: str) -> int:
    """Return how many pods a group should have by a spec."""
    if name == HEAD:
        return 1
    for group in spec["workerGroupSpecs"]:
        if group["groupName"] == name:
            least, most = group["minReplicas"], group["maxReplicas"]
            return (
                0
                if group.get("suspend")
                else min(max(group["replicas"], least), most) * group["numOfHosts"]
            )
    return 0


def is_lost(pod: Body) -> bool:
    """Return whether a pod cannot recover."""
    status = pod.get("status", {})
    if status.get("phase") in {"Failed", "Succeeded"}:
        return True
    statuses: list[Body] = status.get("containerStatuses", [])
    has_ended = any("terminated" in each.get("state", {}) for each in statuses)
    return has_ended and pod["spec"].get("restartPolicy") == "Never"


def _judge_places(spec: Body, pods: list[Body]) -> None:
    """Indexes are unique in a group, and replicas of several hosts are whole."""
    for group in spec["workerGroupSpecs"]:
        members = [pod for pod in pods if _label(pod, labels.GROUP) == group["groupName"]]
        if group["numOfHosts"] == 1:
            _judge_unique(
                f"group {group['groupName']}",
                (_label(pod, labels.REPLICA_INDEX) for pod in members),
            )
            continue
        members.sort(key=lambda pod: _label(pod, labels.REPLICA_NAME))
        indexes: list[str] = []
        for replica, hosts in groupby(members, key=lambda pod: _label(pod, labels.REPLICA_NAME)):
            places = [
                (_label(pod, labels.REPLICA_INDEX), int(_label(pod, labels.HOST_INDEX)))
                for pod in hosts
            ]
            index = places[0][0]
            indexes.append(index)
            if sorted(places) != [(index, host) for host in range(group["numOfHosts"])]:
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


def _pods(objects: Objects) -> list[Body]:
    return [
        body
        for (kind, _, _), body in sorted(objects.items(), key=lambda item: item[0])
        if kind == "Pod"
    ]


def _label(pod: Body, label: str) -> str:
    return pod["metadata"]["labels"].get(label, "")


def _is_going(pod: Body) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _named(group: Body) -> list[str]:
    return group.get("scaleStrategy", {}).get("workersToDelete") or []


def _hosts(spec: Body, name: str) -> int:
    return next(
        (group["numOfHosts"] for group in spec["workerGroupSpecs"] if group["groupName"] == name), 1
    )
