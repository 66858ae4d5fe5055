"""Runs one command against the cluster of the caller: connects, silences logs, and turns an error into one line with its remedy, and an exit code.

A dashboard is asked with the token of the cluster's Secret, or one that Kubernetes issues.

The rights of the user get the token. The user's own is never sent: a dashboard is a tenant's, and could use it for all that the user may do
(ADR 34). A token is read for each command, is not kept, and goes only to a Service that the RayCluster owns.
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
from common.kube.client import KubeClient
from common.kube.resources import SERVICE, Resource
from common.ray import cluster_traits as traits
from common.ray import ports
from common.ray.dashboard import Target
from common.ray.dashboard_token import ACCOUNT, Tokens
from common.ray.view import dashboard_service, foreign_service
from common.version import VERSION
from raybus_cli import kubeconfig as kubeconfigs
from raybus_cli import printing
from raybus_cli.kubeconfig import NoCluster, Where

NOT_SERVED: Final = "the server could not find the requested resource"
"""The API server's message for a kind that it does not know."""
MISSING_NAMESPACE: Final = re2.compile('namespaces? "([a-z0-9-]+)" not found')
INSTALL_CRDS: Final = "the cluster does not serve ray.io/v1: install the CRDs with 'kubectl apply --server-side -k deploy/crds'"


class NoSuchObject(errors.NotFound):
    """There is no object of this kind and name in this namespace."""

    def __init__(self, resource: Resource, namespace: str, name: str) -> None:
        super().__init__(
            f'{resource.plural}.{resource.group} "{name}" not found in namespace "{namespace}"'
        )
        self.resource = resource
        self.name = name


class Denied(errors.Forbidden):
    """A user of the page does not have a right, which the text names."""


class InAnotherNamespace(errors.NotFound):
    """The object is not in this namespace and one of its name is in another, which the text names."""


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


def first(problem: BaseException) -> BaseException:
    """Return the first problem of a group."""
    return next(errors.leaves(problem))


def line(problem: BaseException) -> str:
    """Return a problem as one line."""
    text = " ".join(str(problem).split())
    if is_not_served(problem):
        return INSTALL_CRDS
    if isinstance(problem, errors.Forbidden) and "Unauthorized" in text:
        return "the cluster does not know your user (Unauthorized): log in again, or choose another --context"
    if (
        isinstance(problem, errors.NotFound)
        and (missing := MISSING_NAMESPACE.search(text)) is not None
    ):
        return f"{text}; create it: kubectl create namespace {missing[1]}"
    remedy = next((advice for kind, advice in _REMEDIES if isinstance(problem, kind)), None)
    return text if not remedy or "exceeded quota" in text else f"{text}; {remedy}"


def is_not_served(problem: BaseException) -> bool:
    """Return whether the API server does not serve a kind at all."""
    return isinstance(problem, errors.NotFound) and (
        NOT_SERVED in str(problem) or "page not found" in str(problem)
    )


def exit_code(problem: BaseException) -> int:
    """Return 2 for an invalid command, 1 for one that could not be done."""
    return 2 if isinstance(problem, errors.InvalidSpec) else 1


T = TypeVar("T")
SHOWN: Final = 5
"""Namespaces that a message names."""
USER_AGENT: Final = f"raybus-cli/{VERSION}"
INTERRUPTED: Final = 130


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _List(msgspec.Struct, frozen=True):
    items: list[_Named]


def where(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, code: int | None = None
) -> Where:
    """Return the cluster of a command; end with an error line, and with `code` if it is given, without one."""
    try:
        return kubeconfigs.find(kubeconfig, context, namespace, env=os.environ)
    except errors.RaybusError as problem:
        fail(problem, code=code)


def run(place: Where, work: Callable[[KubeClient], Awaitable[T]], *, code: int | None = None) -> T:
    """Return the result of the work; end with one line, and with `code` if it is given, when it cannot be done."""
    try:
        return asyncio.run(connected(place, work))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BaseExceptionGroup as problems_found:
        problem = first(problems_found)
        if isinstance(problem, BrokenPipeError):
            raise problem from None
        if not isinstance(problem, errors.RaybusError):
            raise
        fail(problem, code=code)
    except errors.RaybusError as problem:
        fail(problem, code=code)


def fail(problem: BaseException, *, code: int | None = None) -> NoReturn:
    """End the command with one line on standard error, and with the exit code of the problem unless another is given."""
    printing.message(f"error: {line(problem)}", err=True)
    raise SystemExit(exit_code(problem) if code is None else code)


def is_interrupted() -> bool:
    """Return whether the user has pressed Ctrl-C."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def now() -> datetime:
    """Return the time: this is the edge."""
    return SystemClock().now()


async def connect(place: Where) -> KubeClient:
    """Return a client for the cluster of a command; raise `NoCluster` when its kubeconfig is of no use."""
    try:
        return await KubeClient.connect(
            kubeconfig=place.kubeconfig, user_agent=USER_AGENT, context=place.context
        )
    except errors.InvalidSpec as problem:
        raise NoCluster(str(problem)) from problem


async def connected(place: Where, work: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Return the result of the work; for an object that does not exist, name the namespaces that have one of its name."""
    kube = await connect(place)

    async def whole() -> T:
        return await work(kube)

    try:
        # Python 3.11 counts the failure of a TaskGroup as a cancellation of the task that waits for it, so this one must not wait for one.
        return await asyncio.create_task(whole())  # noqa: TID251  (a TaskGroup here would be miscounted, too)
    except (errors.RaybusError, BaseExceptionGroup) as problem:
        if is_interrupted():  # an error during the cancellation is not the user's
            raise asyncio.CancelledError from problem
        if isinstance(problem, NoSuchObject):
            raise await located(kube, problem) from None
        raise
    finally:
        await kube.close()


async def located(kube: KubeClient, problem: NoSuchObject) -> errors.NotFound:
    """Return the problem, with the namespaces that have an object of the kind and the name."""
    query = {"fieldSelector": f"metadata.name={problem.name}"}
    try:
        body = await kube.request("GET", problem.resource.path(), query=query)
    except errors.RaybusError:  # not everybody may read all namespaces
        return problem
    found = sorted(each.metadata.namespace for each in msgspec.json.decode(body, type=_List).items)
    if not found:
        return problem
    return InAnotherNamespace(f"{problem}; found in {', '.join(found[:SHOWN])}: add -n {found[0]}")


async def reach(kube: KubeClient, cluster: RayCluster) -> Target:
    """Return the dashboard of a cluster; `Unauthenticated` when the user gets no token for it, or the Service may lead elsewhere."""
    namespace, name = cluster.metadata.namespace, dashboard_service(cluster)
    head = Target(namespace=namespace, name=name, port=ports.DASHBOARD)
    if not traits.has_token_auth(cluster):
        return head
    service = msgspec.json.decode(await kube.get(SERVICE, namespace, name), type=Service)
    if (problem := foreign_service(service, cluster)) is not None:
        raise errors.Unauthenticated(problem)
    try:
        token = await Tokens(kube, SystemClock()).of(cluster)
    except errors.Unauthenticated as problem:
        if isinstance(problem.__cause__, errors.Forbidden):
            raise errors.Unauthenticated(f"{problem}; {_needed_right(cluster)}") from problem
        raise
    return msgspec.structs.replace(head, token=token)


def _needed_right(cluster: RayCluster) -> str:
    namespace = cluster.metadata.namespace
    if traits.has_kubernetes_auth(cluster):
        return f"you need the right to create serviceaccounts/token of {ACCOUNT} in namespace {namespace}"
    return (
        f"you need the right to get Secret {traits.token_secret(cluster)} in namespace {namespace}"
    )


@contextlib.contextmanager
def silenced() -> Generator[None]:
    """Silence all logs for the length of a block."""
    before = structlog.get_config()["wrapper_class"]
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(wrapper_class=before)
        logging.disable(logging.NOTSET)
