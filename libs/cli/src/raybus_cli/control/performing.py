"""Performs a command on several RayServices in turn, and waits for the effect."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Final

import msgspec
import typer

from common import errors
from common.api import ray_service
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.kube.client import JSON_PATCH, KubeClient, PatchRequest
from common.kube.resources import RAY_SERVICE
from raybus_cli import printing, session, waiting
from raybus_cli.control import actions, history
from raybus_cli.control import history as histories
from raybus_cli.control.actions import ControlAction
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.planning import plan as plans
from raybus_cli.planning.plan import Sizing, UpgradePlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.printing import Output
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase

TIMEOUT: Final = 600
TIMED_OUT: Final = 3
"""Exit code if `--wait` reached its timeout."""
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until raybus has taken it up.")]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        parser=waiting.parse_seconds,
        metavar="DURATION",
        help="Longest time of --wait: 10m, 90s.",
        show_default="10m",
    ),
]
Write = Callable[[KubeClient, str, str], Awaitable[ControlAction]]
"""Function that performs a command on a RayService, given by its namespace and name."""


class ActionState(StrEnum):
    """Progress of an action."""

    REQUESTED = "requested"
    DONE = "done"
    TIMED_OUT = "timed out"
    DRY_RUN = "dry run"


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command as JSON or YAML."""

    namespace: str
    name: str
    action: str
    note: str
    state: ActionState


class Reporting(msgspec.Struct, frozen=True):
    """The options for output and waiting, which all upgrade commands have."""

    output: Output
    wait: bool
    limit: float
    """Timeout of `--wait` in seconds."""


def by_annotations(decide: Callable[[RayService], ControlAction]) -> Write:
    """Return a command that sets the annotations of an action on a RayService.

    `decide` returns the action for the present RayService, or raises `Rejected`.
    """

    async def write(kube: KubeClient, namespace: str, name: str) -> ControlAction:
        service = await reader.read_ray_service(kube, namespace, name)
        actions.check_is_managed(service)
        action = decide(service)
        body = {"metadata": {"uid": service.metadata.uid, "annotations": action.annotations}}
        await kube.patch(RAY_SERVICE, namespace, name, PatchRequest(body=body))
        return action

    return write


def build_restoring_write(
    number: int | None, *, is_dry_run: bool = False, show: Callable[[Snapshot, UpgradePlan], None]
) -> Write:
    """Return a command that restores the revision `number`; None means the spec that served before.

    `show` is called with the plan before the plan is applied.
    """

    async def write(kube: KubeClient, namespace: str, name: str) -> ControlAction:
        snapshot = await reader.read(kube, namespace, name)
        entry = history.choose(histories.build(snapshot, now=session.read_clock()), number, name)
        change = history.change(snapshot.service, entry)
        patch = PatchRequest(body=change.operations, content_type=JSON_PATCH)
        goal = await reader.patch(kube, namespace, name, patch)
        planned = plans.build(snapshot, goal, BETA, Sizing(), now=session.read_clock())
        show(snapshot, planned)
        if planned.outcome is PlanOutcome.REFUSED:
            raise errors.Rejected(f"revision {entry.number} would be rejected; nothing is changed")
        stored = (
            goal
            if is_dry_run
            else ray_service.decode(await kube.patch(RAY_SERVICE, namespace, name, patch))
        )
        note = history.describe_change(change, entry, planned.outcome, is_done=not is_dry_run)
        return history.build_action(note, stored.metadata.generation, is_dry_run=is_dry_run)

    return write


def perform(write: Write, names: Sequence[str], access: KubeAccess, how: Reporting) -> None:
    """Perform the command `write` on each RayService, and print the results.

    An error on one RayService is printed and does not stop the others. Exits with 1 if any failed,
    and with 3 if any did not show the effect within the timeout.
    """
    code, done = 0, dict[str, ControlAction]()
    for name in dict.fromkeys(names):
        try:
            done[name] = session.run(access, partial(_write, write, access.namespace, name))
        except SystemExit as ended:
            if len(names) == 1 or ended.code == session.INTERRUPTED:
                raise
            code = 1  # the error is printed already; other objects do not depend on this one
            continue
        if how.output is Output.TEXT:
            printing.print_message(_format_line(name, done[name]))
    late = (
        session.run(access, partial(_wait, access.namespace, done, how.limit))
        if how.wait and done
        else {}
    )
    _print(
        [_build_result(access.namespace, name, action, how, late) for name, action in done.items()],
        how.output,
    )
    for name, why in late.items():
        printing.print_message(
            f"error: not within {how.limit:g} s: {why}; see 'raybus explain {name}'", err=True
        )
    if code or late:
        raise SystemExit(code or TIMED_OUT)


async def _write(write: Write, namespace: str, name: str, kube: KubeClient) -> ControlAction:
    return await write(kube, namespace, name)


async def _wait(
    namespace: str, done: Mapping[str, ControlAction], limit: float, kube: KubeClient
) -> dict[str, str]:
    """Wait at most `limit` seconds for the effects of the actions in `done`.

    The keys of `done` and of the result are names of RayServices. The result says for each pending
    effect why it is pending.
    """

    async def read() -> dict[str, str]:
        services = [
            (await reader.read_ray_service(kube, namespace, name), action)
            for name, action in done.items()
        ]
        return {
            service.metadata.name: _describe_pending(service, action)
            for service, action in services
            if not action.is_done(service)
        }

    return await waiting.poll_until(read, lambda left: "; ".join(left.values()), limit=limit)


def _describe_pending(service: RayService, action: ControlAction) -> str:
    current = phase.derive_phase(service)
    return (
        f"rayservice.ray.io/{service.metadata.name} is not {action.effect} yet: {current.phase}: "
        f"{current.message}"
    )


def _format_line(name: str, action: ControlAction) -> str:
    return f"rayservice.ray.io/{name} {action.effect}" + (
        f" ({action.note})" if action.note else ""
    )


def _build_result(
    namespace: str, name: str, action: ControlAction, how: Reporting, late: Mapping[str, str]
) -> CommandResult:
    if action.is_dry_run:
        state = ActionState.DRY_RUN
    elif name in late:
        state = ActionState.TIMED_OUT
    else:
        state = ActionState.DONE if how.wait else ActionState.REQUESTED
    return CommandResult(
        namespace=namespace, name=name, action=action.effect, note=action.note, state=state
    )


def _print(results: Sequence[CommandResult], output: Output) -> None:
    if output is Output.NAME:
        for result in results:
            printing.print_message(f"rayservice.ray.io/{result.name}")
    elif output is not Output.TEXT and results:
        printing.print_data(results if len(results) > 1 else results[0], output)
