"""Runs one command against the user's cluster.

The command runs with logs silenced. An error ends it with one line on standard error, which says
what to do, and with an exit code.

Requests to a Ray dashboard carry the token of the RayCluster's Secret, or a token that Kubernetes
issues for it; the user's rights decide whether the command gets one. The user's own token is never
sent: the dashboard belongs to a tenant, who could use the token for everything that the user may do
(ADR 27). A token is fetched for each command, never stored, and sent only to a Service that the
RayCluster owns.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Final, NoReturn, TypeVar

import msgspec
import re2
import structlog

from common import errors
from common.api.core import Service
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.clock import SystemClock
from common.kube import answers
from common.kube.answers import RefusalKind
from common.kube.client import KubeClient
from common.kube.resources import RAY_JOB, SERVICE, Resource
from common.ray import cluster_traits as traits
from common.ray import ports
from common.ray.dashboard import Target
from common.ray.dashboard_token import ACCOUNT, Tokens, remedy
from common.ray.view import dashboard_service, foreign_service
from common.version import VERSION
from raybus_cli import kubeconfig as kubeconfigs
from raybus_cli import printing
from raybus_cli.kubeconfig import KubeAccess, NoCluster

NOT_SERVED: Final = "the server could not find the requested resource"
"""The API server's message for a kind that it does not serve."""
MISSING_NAMESPACE: Final = re2.compile('namespaces? "([a-z0-9-]+)" not found')
INSTALL_CRDS: Final = (
    "the cluster does not serve ray.io/v1: install the CRDs with 'kubectl apply --server-side -k "
    "deploy/crds'"
)


class NoSuchObject(errors.NotFound):
    """No object of this kind and name exists in the namespace."""

    def __init__(self, resource: Resource, namespace: str, name: str) -> None:
        super().__init__(
            f'{resource.plural}.{resource.group} "{name}" not found in namespace "{namespace}"'
        )
        self.resource = resource
        self.name = name


class AccessDenied(errors.Forbidden):
    """The user of the dashboard page lacks a right, which the message names."""


class InAnotherNamespace(errors.NotFound):
    """The object is in other namespaces, which the message lists, but not in the requested one."""


_REMEDIES: Final = (
    (InAnotherNamespace, ""),
    (errors.NotFound, "see what there is with 'raybus list -A'"),
    (
        errors.Forbidden,
        "ask for that right, and see what you may do with 'kubectl auth can-i --list'",
    ),
    (errors.Conflict, "another client changed it just now, try again"),
    (errors.Unavailable, "is it up, and is the --context right?"),
    (errors.Throttled, "try again in a moment"),
)


RETRYABLE_ERRORS: Final = (errors.Unavailable, errors.Throttled)
"""Errors after which a command that follows an object tries again."""


def find_first(problem: BaseException) -> BaseException:
    """Return the first leaf error of an exception group."""
    return next(errors.leaves(problem))


def format_error(problem: BaseException) -> str:
    """Format an error as one line that ends with a remedy."""
    text = " ".join(str(problem).split())
    if is_not_served(problem):
        return INSTALL_CRDS
    if isinstance(problem, errors.Forbidden) and "Unauthorized" in text:
        return (
            "the cluster does not know your user (Unauthorized): log in again, or choose another "
            "--context"
        )
    if (
        isinstance(problem, errors.NotFound)
        and (missing := MISSING_NAMESPACE.search(text)) is not None
    ):
        return f"{text}; create it: kubectl create namespace {missing[1]}"
    if isinstance(problem, NoSuchObject) and problem.resource is RAY_JOB:
        return f"{text}; see what there is with 'kubectl get rayjobs -A'"
    advice = next((advice for kind, advice in _REMEDIES if isinstance(problem, kind)), None)
    return (
        text
        if not advice or answers.classify(text) is RefusalKind.QUOTA_EXCEEDED
        else f"{text}; {advice}"
    )


def is_not_served(problem: BaseException) -> bool:
    """Return whether a request failed because the API server does not serve the requested kind.

    This is the case if the kind's CRD is not installed, for example.
    """
    return isinstance(problem, errors.NotFound) and (
        NOT_SERVED in str(problem) or "page not found" in str(problem)
    )


def find_exit_code(problem: BaseException) -> int:
    """Return 2 if the command or manifest is invalid, else 1."""
    return 2 if isinstance(problem, errors.InvalidSpec) else 1


T = TypeVar("T")
MAX_SHOWN_NAMESPACES: Final = 5
"""Maximum number of namespaces listed in a message."""
USER_AGENT: Final = f"raybus-cli/{VERSION}"
INTERRUPTED: Final = 130


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _List(msgspec.Struct, frozen=True):
    items: list[_Named]


def select_access(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, code: int | None = None
) -> KubeAccess:
    """Select the cluster and namespace of a command.

    An error is printed as one line. The process then exits with `code`, or with the error's own
    exit code.
    """
    try:
        return kubeconfigs.find(kubeconfig, context, namespace, env=os.environ)
    except errors.RaybusError as problem:
        fail(problem, code=code)


def run(
    access: KubeAccess, work: Callable[[KubeClient], Awaitable[T]], *, code: int | None = None
) -> T:
    """Run `work` with a connected client and return its result.

    An error is printed as one line. The process then exits with `code`, or with the error's own
    exit code. Ctrl-C exits with 130.
    """
    try:
        return asyncio.run(run_connected(access, work))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BaseExceptionGroup as problems_found:
        problem = find_first(problems_found)
        if isinstance(problem, BrokenPipeError):
            raise problem from None
        if not isinstance(problem, errors.RaybusError):
            raise
        fail(problem, code=code)
    except errors.RaybusError as problem:
        fail(problem, code=code)


def fail(problem: BaseException, *, code: int | None = None) -> NoReturn:
    """Print an error as one line on standard error, and exit.

    The exit code is `code`, or the error's own exit code.
    """
    printing.print_message(f"error: {format_error(problem)}", err=True)
    raise SystemExit(find_exit_code(problem) if code is None else code)


def is_interrupted() -> bool:
    """Return whether Ctrl-C has cancelled the current task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def read_clock() -> datetime:
    """Return the current time.

    Only the outermost layer calls this function; others take `now` as an argument.
    """
    return SystemClock().now()


async def connect(access: KubeAccess) -> KubeClient:
    """Connect to the Kubernetes cluster that the options select.

    Raises `NoCluster` if the kubeconfig is unusable.
    """
    try:
        return await KubeClient.connect(
            kubeconfig=access.kubeconfig, user_agent=USER_AGENT, context=access.context
        )
    except errors.InvalidSpec as problem:
        raise NoCluster(str(problem)) from problem


async def run_connected(access: KubeAccess, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Run `work` with a connected client and return its result.

    If `work` raises `NoSuchObject`, the namespaces that have an object of that name are added to
    the error.
    """
    kube = await connect(access)

    async def run_within_client() -> T:
        return await work(kube)

    try:
        # On Python 3.11 a TaskGroup that fails also counts as a cancellation of the task that
        # awaits it, which would look like Ctrl-C; so `work` runs in a task of its own.
        # A TaskGroup here would be counted in the same way.
        return await asyncio.create_task(run_within_client())  # noqa: TID251
    except (errors.RaybusError, BaseExceptionGroup) as problem:
        if is_interrupted():  # an error during the cancellation is not the user's
            raise asyncio.CancelledError from problem
        if isinstance(problem, NoSuchObject):
            raise await find_elsewhere(kube, problem) from None
        raise
    finally:
        await kube.close()


async def find_elsewhere(kube: KubeClient, problem: NoSuchObject) -> errors.NotFound:
    """Search all namespaces for an object of the kind and name that `problem` reports as missing.

    Returns `InAnotherNamespace` if there is one. Returns `problem` unchanged if there is none, or
    if the user may not list all namespaces.
    """
    query = {"fieldSelector": f"metadata.name={problem.name}"}
    try:
        body = await kube.request("GET", problem.resource.path(), query=query)
    except errors.RaybusError:  # not every user may read all namespaces
        return problem
    namespaces = sorted(
        item.metadata.namespace for item in msgspec.json.decode(body, type=_List).items
    )
    if not namespaces:
        return problem
    return InAnotherNamespace(
        f"{problem}; found in {', '.join(namespaces[:MAX_SHOWN_NAMESPACES])}: "
        f"add -n {namespaces[0]}"
    )


async def find_dashboard(kube: KubeClient, cluster: RayCluster) -> Target:
    """Return the address of a cluster's dashboard, with its token if it requires one.

    Raises `Unauthenticated` if the user may not read a token. Also raises it if the RayCluster does
    not own the Service, which could then lead elsewhere.
    """
    namespace, name = cluster.metadata.namespace, dashboard_service(cluster)
    head = Target(namespace=namespace, name=name, port=ports.DASHBOARD)
    if not traits.has_token_auth(cluster):
        return head
    service = msgspec.json.decode(await kube.get(SERVICE, namespace, name), type=Service)
    if (problem := foreign_service(service, cluster)) is not None:
        raise errors.Unauthenticated(problem)
    try:
        token = await Tokens(kube, SystemClock()).read_token(cluster)
    except errors.Unauthenticated as problem:
        if isinstance(problem.__cause__, errors.Forbidden):
            raise errors.Unauthenticated(
                f"{problem}; {_describe_needed_right(cluster)}"
            ) from problem
        raise
    return msgspec.structs.replace(head, token=token)


def build_token_error(
    problem: errors.Unauthenticated, head: Target, cluster: RayCluster
) -> errors.Unauthenticated:
    """Return the error for a Ray dashboard at `head` that rejects the token, with a remedy.

    `problem` is the dashboard's answer.
    """
    return errors.Unauthenticated(
        f"the dashboard at {head.name} refuses the request: {problem}; {remedy(cluster)}"
    )


def _describe_needed_right(cluster: RayCluster) -> str:
    namespace = cluster.metadata.namespace
    if traits.has_kubernetes_auth(cluster):
        return (
            f"you need the right to create serviceaccounts/token of {ACCOUNT} in namespace "
            f"{namespace}"
        )
    return (
        f"you need the right to get Secret {traits.token_secret(cluster)} in namespace {namespace}"
    )


@contextlib.contextmanager
def silence_logs() -> Generator[None]:
    """Silence all logs within a `with` block."""
    before = structlog.get_config()["wrapper_class"]
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(wrapper_class=before)
        logging.disable(logging.NOTSET)
