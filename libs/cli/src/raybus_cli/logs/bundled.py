"""The logs of an archive, selected by the options that select them on a cluster. Pure."""

from collections.abc import Iterator

import msgspec

from common import errors, labels
from common.api import ray_service
from common.api.core import Pod
from common.api.opaque import Json
from common.kube.resources import RAY_SERVICE
from raybus_cli.bundling.kept_logs import Archive, Index, KeptLog
from raybus_cli.logs import lines, selection
from raybus_cli.logs.lines import Form, Source, Splitter
from raybus_cli.logs.selection import Choice, Extent
from raybus_cli.reading.kinds import Target


def check(choice: Choice, extent: Extent) -> None:
    """Raise `InvalidSpec` for options that need a cluster."""
    needing = {
        "-f": extent.follow,
        "--since": extent.since is not None,
        "-p": extent.previous,
        "--app": choice.app is not None,
        "--deployment": choice.deployment is not None,
    }
    if wrong := [name for name, is_given in needing.items() if is_given]:
        raise errors.InvalidSpec(f"{' and '.join(wrong)} cannot be used with --bundle, which has the end of each log")


def select(archive: Archive, target: Target, choice: Choice) -> list[KeptLog]:
    """Return the wanted logs; raise `Rejected` where the archive has none of them."""
    index = archive.index
    cluster = target.name
    known = list(dict.fromkeys(each.cluster for each in index.logs))
    if target.resource is RAY_SERVICE:
        if target.name != index.service:
            raise errors.Rejected(f"the bundle is of RayService {index.service}, not of {target.name}")
        cluster = selection.cluster(_service(index), choice.cluster, known)
    elif cluster not in known:
        raise errors.Rejected(f"the bundle has no logs of RayCluster {cluster}; it has {', '.join(known) or 'none'}")
    pods = selection.pods(_pods(index, cluster), choice, cluster, target)
    names = [each.source for each in selection.logs(index.namespace, pods, choice, Extent())]
    by_source = {Source(each.pod, each.container): each for each in index.logs if each.cluster == cluster}
    return [by_source[each] for each in names if each in by_source]


def rendered(archive: Archive, found: list[KeptLog], form: Form, tail: int | None) -> Iterator[bytes]:
    """Yield the lines of some logs, as they are printed; a log that is named and missing has none."""
    for each in found:
        splitter = Splitter()
        whole = splitter.feed(archive.texts.get(each.file, b"")) + splitter.end()
        for line in whole if tail is None else whole[len(whole) - min(tail, len(whole)) :]:
            yield lines.render(Source(each.pod, each.container), line, form)


def _service(index: Index) -> ray_service.RayService:
    status = {
        "activeServiceStatus": {"rayClusterName": index.active},
        "pendingServiceStatus": {"rayClusterName": index.pending},
    }
    meta = {"name": index.service, "namespace": index.namespace}
    return ray_service.decode({"metadata": meta, "spec": {}, "status": status})


def _pods(index: Index, cluster: str) -> list[Pod]:
    found: dict[str, Json] = {}
    for each in index.logs:
        if each.cluster == cluster:
            marks = {labels.NODE_TYPE: each.node_type, labels.GROUP: each.group}
            empty: Json = {"metadata": {"name": each.pod, "labels": marks}, "spec": {"containers": []}}
            found.setdefault(each.pod, empty)["spec"]["containers"].append({"name": each.container})
    return msgspec.convert([*found.values()], list[Pod])
