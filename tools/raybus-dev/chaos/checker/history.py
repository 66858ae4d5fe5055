"""Rules that hold at every moment: heads, workers, RayService clusters, weights, generations.

The states of all objects are replayed in the order of their versions. Each new state is judged
together with the states of all other objects at that version.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from chaos.checker.evidence import HEAD, ObservedState, Violation
from common import labels, names

WHOLE: Final = 100
MEMORY_SECONDS: Final = 30.0


def judge(seen: Iterable[ObservedState], *, memory: float = MEMORY_SECONDS) -> list[Violation]:
    """Return every violation of the rules of this module, in order.

    After the spec asks for fewer workers, the earlier number remains allowed for `memory` seconds,
    because raybus may not know the new spec yet.
    """
    reported = sorted(seen, key=lambda state: state.version)
    replay = _Replay(memory, _get_first_worker_counts(reported))
    return [violation for one in reported for violation in replay.take(one)]


def _get_worker_counts(cluster: ObservedState) -> dict[str, int]:
    return {
        group.group_name: group.wanted for group in cluster.object.spec.worker_group_specs or []
    }


def _get_first_worker_counts(
    reported: Iterable[ObservedState],
) -> dict[tuple[str, str], dict[str, int]]:
    """Return the desired workers of each group, from the first watched state of each RayCluster."""
    first: dict[tuple[str, str], dict[str, int]] = {}
    for one in reported:
        if one.kind == "RayCluster":
            first.setdefault(
                (one.object.metadata.namespace, one.object.metadata.name), _get_worker_counts(one)
            )
    return first


class _Replay:
    """Replays the states of all objects in order, and checks the rules for each new state."""

    def __init__(
        self, memory: float, first_counts: Mapping[tuple[str, str], dict[str, int]]
    ) -> None:
        self._memory = memory
        self._first_counts = first_counts
        self._now: dict[tuple[str, str, str], ObservedState] = {}
        self._pods: defaultdict[tuple[str, str], dict[str, ObservedState]] = defaultdict(dict)
        self._wanted: defaultdict[tuple[str, str], list[tuple[float, dict[str, int]]]] = (
            defaultdict(list)
        )
        self._generations: dict[str, int] = {}
        self._named: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._retired: set[tuple[str, str]] = set()
        """Clusters that a RayService's status named earlier and no longer names."""
        self._rules: dict[str, Callable[[ObservedState, bool], Iterator[Violation]]] = {
            "Pod": self._check_pod,
            "RayCluster": self._check_cluster,
            "RayService": self._record_clusters,
            "HTTPRoute": self._check_route,
        }

    def take(self, seen: ObservedState) -> Iterator[Violation]:
        """Apply the next state, and yield a violation for each rule that it breaks."""
        before = self._now.get(seen.key)
        if before is not None and before.version >= seen.version:
            return
        is_new = (
            before is None
            or before.is_gone
            or before.object.metadata.uid != seen.object.metadata.uid
        )
        self._now[seen.key] = seen
        rule = self._rules.get(seen.kind)
        if rule is not None:
            yield from self._check_generation(seen)
            yield from rule(seen, is_new)

    def _check_pod(self, seen: ObservedState, is_new: bool) -> Iterator[Violation]:
        meta = seen.object.metadata
        cluster = (meta.namespace, meta.labels.get(labels.CLUSTER, ""))
        pods = self._pods[cluster]
        pods[meta.name] = seen
        if not is_new or not seen.is_alive:
            return
        node, group = meta.labels.get(labels.NODE_TYPE), meta.labels.get(labels.GROUP, "")
        alive = [pod for pod in pods.values() if pod.is_alive]
        if node == HEAD:
            heads = [
                pod.object.metadata.name
                for pod in alive
                if pod.object.label.get(labels.NODE_TYPE) == HEAD
            ]
            if len(heads) > 1:
                yield _build_violation(
                    "one head", seen, cluster[1], f"{len(heads)} heads at once: {', '.join(heads)}"
                )
            return
        have = sum(pod.object.label.get(labels.GROUP) == group for pod in alive)
        most = self._get_max_workers(cluster, group, seen.at)
        if have > most:
            yield _build_violation(
                "no more workers than wanted",
                seen,
                cluster[1],
                f"group {group} has {have}, wanted {most}",
            )
        place = _get_pod_index(seen)
        there = [pod.object.metadata.name for pod in alive if _get_pod_index(pod) == place]
        if labels.REPLICA_INDEX in meta.labels and len(there) > 1:
            yield _build_violation(
                "one pod for one place",
                seen,
                cluster[1],
                f"{', '.join(there)} are {' '.join(place)}",
            )

    def _get_max_workers(self, cluster: tuple[str, str], group: str, at: float) -> int:
        """Return the highest desired number of workers of a group in the last `memory` seconds."""
        history = self._wanted[cluster] or [(at, self._first_counts.get(cluster, {}))]
        recent = [wanted for since, wanted in history if since >= at - self._memory]
        before = [wanted for since, wanted in history if since < at - self._memory][-1:]
        return max((wanted.get(group, 0) for wanted in before + recent), default=0)

    def _check_cluster(self, seen: ObservedState, is_new: bool) -> Iterator[Violation]:
        meta = seen.object.metadata
        key = (meta.namespace, meta.name)
        groups = _get_worker_counts(seen)
        history = self._wanted[key]
        if not history or history[-1][1] != groups:
            history.append((seen.at, groups))
        service = meta.labels.get(labels.ORIGIN_NAME)
        if service is None or meta.labels.get(labels.ORIGIN_KIND) != "RayService":
            return
        if is_new and seen.is_alive:
            yield from self._check_duplicate_clusters(seen, service)
        if not seen.is_alive:
            yield from self._check_deletion(seen, service)

    def _check_duplicate_clusters(self, seen: ObservedState, service: str) -> Iterator[Violation]:
        spec_hash = seen.object.metadata.annotations.get(labels.SPEC_HASH, "")
        twins = [
            cluster.object.metadata.name
            for cluster in self._list_living_clusters(seen.object.metadata.namespace, service)
            if cluster.object.metadata.annotations.get(labels.SPEC_HASH, "") == spec_hash
        ]
        if len(twins) > 1:
            yield _build_violation(
                "one cluster for one spec",
                seen,
                service,
                f"{', '.join(twins)} have the hash {spec_hash}",
            )

    def _list_living_clusters(self, namespace: str, service: str) -> Iterator[ObservedState]:
        for (kind, space, name), cluster in self._now.items():
            is_its = (kind, space, cluster.object.label.get(labels.ORIGIN_NAME)) == (
                "RayCluster",
                namespace,
                service,
            )
            if is_its and cluster.is_alive and (namespace, name) not in self._retired:
                yield cluster

    def _record_clusters(self, seen: ObservedState, _is_new: bool) -> Iterator[Violation]:
        meta, status = seen.object.metadata, seen.object.status
        key = (meta.namespace, meta.name)
        held = {
            status.active_service_status.ray_cluster_name,
            status.pending_service_status.ray_cluster_name,
        } - {""}
        named = self._named[key]
        named |= held
        self._retired |= {(meta.namespace, name) for name in named - held}
        self._retired -= {(meta.namespace, name) for name in held}
        return iter(())

    def _check_route(self, seen: ObservedState, _is_new: bool) -> Iterator[Violation]:
        if not seen.is_alive:
            return
        meta = seen.object.metadata
        service = meta.name.removesuffix("-httproute")
        for rule in seen.object.spec.rules:
            total = sum(backend.weight for backend in rule.backend_refs)
            if rule.backend_refs and total != WHOLE:
                yield _build_violation(
                    "weights make 100", seen, service, f"they make {total}: {_format_weights(seen)}"
                )
            for backend in rule.backend_refs:
                if backend.weight and not self._is_there(meta.namespace, backend.name, service):
                    yield _build_violation(
                        "no weight on what is gone", seen, service, _format_weights(seen)
                    )

    def _check_deletion(self, seen: ObservedState, service: str) -> Iterator[Violation]:
        """Judge the deletion of a RayCluster.

        No route may still send traffic to it, unless its RayService is deleted too.
        """
        meta = seen.object.metadata
        owner = self._now.get(("RayService", meta.namespace, service))
        route = self._now.get(("HTTPRoute", meta.namespace, names.http_route(service)))
        if owner is None or not owner.is_alive or route is None or not route.is_alive:
            return
        backend = names.serve_service(meta.name)
        for rule in route.object.spec.rules:
            if any(
                reference.name == backend and reference.weight for reference in rule.backend_refs
            ):
                yield _build_violation(
                    "no weight on what is gone",
                    seen,
                    service,
                    f"{meta.name} goes; {_format_weights(route)}",
                )

    def _is_there(self, namespace: str, backend: str, service: str) -> bool:
        cluster = self._now.get(
            ("RayCluster", namespace, backend.removesuffix(names.serve_service("")))
        )
        owner = self._now.get(("RayService", namespace, service))
        return (cluster is not None and cluster.is_alive) or owner is None or not owner.is_alive

    def _check_generation(self, seen: ObservedState) -> Iterator[Violation]:
        meta, observed = seen.object.metadata, seen.object.status.observed_generation
        if seen.is_gone or observed is None or seen.kind not in {"RayCluster", "RayService"}:
            return
        before = self._generations.get(meta.uid, 0)
        self._generations[meta.uid] = max(before, observed)
        if observed < before:
            yield _build_violation(
                "no status regresses",
                seen,
                meta.name,
                f"observedGeneration {observed} after {before}",
            )


def _get_pod_index(pod: ObservedState) -> tuple[str, str, str]:
    """Return a worker pod's group, replica index and host index; "" for a missing label."""
    label = pod.object.label
    return (
        label.get(labels.GROUP, ""),
        label.get(labels.REPLICA_INDEX, ""),
        label.get(labels.HOST_INDEX, ""),
    )


def _format_weights(route: ObservedState) -> str:
    weights = [
        f"{backend.name} {backend.weight}"
        for rule in route.object.spec.rules
        for backend in rule.backend_refs
    ]
    return f"{route.object.metadata.name}: {', '.join(weights)}"


def _build_violation(rule: str, seen: ObservedState, about: str, text: str) -> Violation:
    namespace = seen.object.metadata.namespace
    return Violation(
        rule=rule,
        about=f"{namespace}/{about}",
        text=f"{text} (at version {seen.version})",
        at=seen.at,
    )
