"""Typer arguments and options that name objects, clusters and namespaces, with shell completion.

Completion reads the cluster; if that fails, it offers no candidates instead of an error.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
import typer

from common import errors
from common.api.meta import Items, ObjectMeta
from common.kube.resources import NAMESPACE, Resource
from raybus_cli import kubeconfig as kubeconfigs
from raybus_cli import session
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import (
    CLUSTER,
    CRON_JOB,
    JOB,
    KINDS,
    LONG_RUNNING,
    SERVICE,
    ArgumentKind,
    NamedTarget,
)

COMPLETION_TIMEOUT_SECONDS: Final = 2.0
"""Timeout of a completion request. The shell must not hang after a key press."""


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def complete_services(ctx: Any, incomplete: str) -> list[str]:
    """Complete the name of a RayService: return the names that start with `incomplete`."""
    return complete_names(SERVICE.resource, ctx.params, incomplete)


def complete_jobs(ctx: Any, incomplete: str) -> list[str]:
    """Complete the name of a RayJob: return the names that start with `incomplete`."""
    return complete_names(JOB.resource, ctx.params, incomplete)


def _complete_targets(*accepted: ArgumentKind) -> Callable[[Any, str], list[str]]:
    """Return a function that completes `NAME` of a RayService, or `KIND/NAME` of given kinds."""

    def complete(ctx: Any, incomplete: str) -> list[str]:
        typed, slash, begun = incomplete.partition("/")
        kind = next((kind for kind in accepted if kind.is_named(typed)), None)
        if slash:
            names = [] if kind is None else complete_names(kind.resource, ctx.params, begun)
            return [f"{typed}/{name}" for name in names]
        return complete_services(ctx, incomplete)

    return complete


HISTORY_KINDS: Final = (SERVICE, JOB)
STATUS_KINDS: Final = (SERVICE, JOB, CRON_JOB)
LOGS_KINDS: Final = (SERVICE, CLUSTER, JOB, CRON_JOB)


def complete_arguments(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """Complete `KIND NAME...` or `KIND/NAME`.

    Kinds are offered first, then the names of the kind typed before. Names that are already on the
    command line are left out.
    """
    given = [*(ctx.params.get("arguments") or ()), *args]
    typed, slash, begun = incomplete.partition("/")
    first = given[0] if given else ""
    if slash or "/" in first:
        kind = kinds.find(typed)
        return (
            [f"{typed}/{name}" for name in complete_names(kind.resource, ctx.params, begun)]
            if kind and slash
            else []
        )
    if not first:
        return [kind.singular for kind in KINDS if kind.singular.startswith(incomplete)]
    kind = kinds.find(first)
    return (
        [
            name
            for name in complete_names(kind.resource, ctx.params, incomplete)
            if name not in given
        ]
        if kind
        else []
    )


def complete_names(resource: Resource, given: Any, incomplete: str) -> list[str]:
    """Return the names of a kind that start with `incomplete`.

    `given` are the options typed so far, which select the cluster and the namespace. The list is
    empty if the names cannot be read within `COMPLETION_TIMEOUT_SECONDS`.
    """
    try:
        access = kubeconfigs.find(
            given.get("kubeconfig"), given.get("context"), given.get("namespace"), env=os.environ
        )
        names = asyncio.run(_list_names(access, resource))
    except (errors.RaybusError, TimeoutError):
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _list_names(access: KubeAccess, resource: Resource) -> list[str]:
    kube = await session.connect(access)
    try:
        async with asyncio.timeout(COMPLETION_TIMEOUT_SECONDS):
            body = await kube.list(resource, None if resource == NAMESPACE else access.namespace)
    finally:
        await kube.close()
    return sorted(
        item.metadata.name for item in msgspec.json.decode(body, type=Items[_Named]).items
    )


def _parse_name(kind: ArgumentKind, given: str) -> str:
    """Return the name in `NAME` or `KIND/NAME`; raise `BadParameter` if KIND is not `kind`."""
    typed, slash, name = given.partition("/")
    if not slash:
        return given
    if not kind.is_named(typed) or not name:
        raise typer.BadParameter(
            f"{given!r} is neither the name of a {kind.resource.kind} nor {kind.singular}/NAME"
        )
    return name


def _parse_service_name(given: str) -> str:
    return _parse_name(SERVICE, given)


def _parse_job_name(given: str) -> str:
    return _parse_name(JOB, given)


NameArgument = Annotated[
    str,
    typer.Argument(
        parser=_parse_service_name,
        metavar="NAME",
        help="Name of the RayService.",
        autocompletion=complete_services,
    ),
]


def _parse_target(accepted: tuple[ArgumentKind, ...], given: str) -> NamedTarget:
    """Parse `NAME`, which names a RayService, or `KIND/NAME`.

    Raises `BadParameter` for a kind that is not in `accepted`.
    """
    typed, slash, name = given.partition("/")
    if not slash:
        return NamedTarget(SERVICE, given)
    kind = next((kind for kind in accepted if kind.is_named(typed)), None)
    if kind is None or not name:
        forms = " nor ".join(f"{kind.singular}/NAME" for kind in accepted)
        raise typer.BadParameter(f"{given!r} is neither a name nor {forms}")
    return NamedTarget(kind, name)


def _parse_status_target(given: str) -> NamedTarget:
    return _parse_target(STATUS_KINDS, given)


def _parse_logs_target(given: str) -> NamedTarget:
    return _parse_target(LOGS_KINDS, given)


def _parse_history_target(given: str) -> NamedTarget:
    return _parse_target(HISTORY_KINDS, given)


HistoryTargetArgument = Annotated[
    NamedTarget,
    typer.Argument(
        parser=_parse_history_target,
        metavar="NAME",
        help="Name of the RayService, or rayjob/NAME.",
        autocompletion=_complete_targets(*HISTORY_KINDS),
    ),
]
StatusTargetArgument = Annotated[
    NamedTarget,
    typer.Argument(
        parser=_parse_status_target,
        metavar="NAME",
        help="Name of the RayService, rayjob/NAME or raycronjob/NAME.",
        autocompletion=_complete_targets(*STATUS_KINDS),
    ),
]
LogsTargetArgument = Annotated[
    NamedTarget,
    typer.Argument(
        parser=_parse_logs_target,
        metavar="NAME",
        help="Name of the RayService, or raycluster/, rayjob/ or raycronjob/NAME.",
        autocompletion=_complete_targets(*LOGS_KINDS),
    ),
]
JobNameArgument = Annotated[
    str,
    typer.Argument(
        parser=_parse_job_name,
        metavar="NAME",
        help="Name of the RayJob.",
        autocompletion=complete_jobs,
    ),
]
TargetsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND [NAME]",
        help="rayservice, raycluster, rayjob or raycronjob, and names; or KIND/NAME of several.",
        autocompletion=complete_arguments,
        show_default=False,
    ),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(
        parser=_parse_service_name,
        metavar="NAME",
        help="Names of RayServices.",
        autocompletion=complete_services,
    ),
]


def complete_contexts(ctx: Any, incomplete: str) -> list[str]:
    """Complete `--context`: return the contexts of the kubeconfig that start with `incomplete`."""
    try:
        contexts = kubeconfigs.list_contexts(ctx.params.get("kubeconfig"), env=os.environ)
    except errors.RaybusError:
        return []
    return [name for name in contexts if name.startswith(incomplete)]


def complete_namespaces(ctx: Any, incomplete: str) -> list[str]:
    """Complete `--namespace`: return the namespaces of the cluster that start with `incomplete`."""
    return complete_names(NAMESPACE, ctx.params, incomplete)


KubeconfigOption = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig", help="Path of the kubeconfig; default: $KUBECONFIG or ~/.kube/config."
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig; default: the current one.",
        autocompletion=complete_contexts,
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace; default: that of the context.",
        autocompletion=complete_namespaces,
    ),
]
RaybusNamespaceOption = Annotated[
    str,
    typer.Option(
        "--raybus-namespace", help="Namespace of raybus.", autocompletion=complete_namespaces
    ),
]


def parse(given: str) -> NamedTarget:
    """Parse `NAME`, `rayservice/NAME` or `raycluster/NAME`.

    A name without a kind means a RayService.
    """
    return _parse_target(LONG_RUNNING, given)


TargetArgument = Annotated[
    NamedTarget,
    typer.Argument(
        parser=parse,
        metavar="NAME",
        help="Name of the RayService, or raycluster/NAME.",
        autocompletion=complete_services,
    ),
]
