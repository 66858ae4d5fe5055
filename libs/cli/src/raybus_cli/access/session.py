"""Runs one command against the cluster of the caller: connects, and turns an error into one line and an exit code."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, NoReturn, TypeVar

import msgspec

from common import errors
from common.api.meta import ObjectMeta
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.version import VERSION
from raybus_cli.access import kubeconfig as kubeconfigs
from raybus_cli.access import problems
from raybus_cli.access.kubeconfig import NoCluster, Where
from raybus_cli.output import printing

T = TypeVar("T")
SHOWN: Final = 5
"""Namespaces that a message names."""
USER_AGENT: Final = f"raybus-cli/{VERSION}"
INTERRUPTED: Final = 130


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _List(msgspec.Struct, frozen=True):
    items: list[_Named]


def where(kubeconfig: str | None, context: str | None, namespace: str | None, *, code: int | None = None) -> Where:
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
        problem = problems.first(problems_found)
        if isinstance(problem, BrokenPipeError):
            raise problem from None
        if not isinstance(problem, errors.RaybusError):
            raise
        fail(problem, code=code)
    except errors.RaybusError as problem:
        fail(problem, code=code)


def fail(problem: BaseException, *, code: int | None = None) -> NoReturn:
    """End the command with one line on standard error, and with the exit code of the problem unless another is given."""
    printing.message(f"error: {problems.line(problem)}", err=True)
    raise SystemExit(problems.exit_code(problem) if code is None else code)


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
        return await KubeClient.connect(kubeconfig=place.kubeconfig, user_agent=USER_AGENT, context=place.context)
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
        if isinstance(problem, problems.NoSuchObject):
            raise await located(kube, problem) from None
        raise
    finally:
        await kube.close()


async def located(kube: KubeClient, problem: problems.NoSuchObject) -> errors.NotFound:
    """Return the problem, with the namespaces that have an object of the kind and the name."""
    query = {"fieldSelector": f"metadata.name={problem.name}"}
    try:
        body = await kube.request("GET", problem.resource.path(), query=query)
    except errors.RaybusError:  # not everybody may read all namespaces
        return problem
    found = sorted(each.metadata.namespace for each in msgspec.json.decode(body, type=_List).items)
    if not found:
        return problem
    return problems.InAnotherNamespace(f"{problem}; found in {', '.join(found[:SHOWN])}: add -n {found[0]}")
