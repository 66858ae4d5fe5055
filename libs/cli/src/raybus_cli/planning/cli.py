"""`raybus plan`: plans the change from the stored RayService to a manifest.

The manifest is read as the API server would store it (a dry run). The UpgradePolicies of the
namespace are read as well.
"""

from typing import Annotated

import msgspec
import typer

from common import errors, feature_gates, labels
from common.api import ray_service
from common.api.meta import Items
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.feature_gates import Gates
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE, UPGRADE_POLICY, find_name_violation
from common.ray import serve_writer
from common.upgrade.policy import Stored
from raybus_cli import manifests, printing, session
from raybus_cli.arguments import ContextOption, KubeconfigOption, NamespaceOption
from raybus_cli.manifests import Document, FilenameOption, KustomizeOption, RecursiveOption
from raybus_cli.planning import picture, policies
from raybus_cli.planning import plan as plans
from raybus_cli.planning.plan import Plan, Sizing
from raybus_cli.planning.policies import PolicyPlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.printing import Output, ReportOption
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot


async def read(kube: KubeClient, service: RayService) -> PolicyPlan | None:
    """Return what the UpgradePolicy of a RayService means for its upgrade.

    None if the RayService follows no policy, or if it follows the default and the user may not read
    policies.
    """
    name = service.metadata.annotations.get(labels.UPGRADE_POLICY, "")
    if name and (why := find_name_violation(UPGRADE_POLICY, name)) is not None:
        return PolicyPlan(
            name=name, problem=f"{labels.UPGRADE_POLICY} is not the name of an UpgradePolicy: {why}"
        )
    try:
        body = await kube.list(UPGRADE_POLICY, service.metadata.namespace)
        found = msgspec.json.decode(body, type=Items[Stored]).items
        return policies.chosen(name, found, in_steps=serve_writer.asks_for_steps(service))
    except errors.NotFound:
        return policies.chosen(name, [])
    except (errors.Forbidden, msgspec.DecodeError) as problem:
        return PolicyPlan(name=name, problem=f"it cannot be read: {problem}") if name else None


def plan(
    file: FilenameOption = None,
    kustomize: KustomizeOption = None,
    recursive: RecursiveOption = False,
    surge: Annotated[
        int | None,
        typer.Option(
            "--max-surge", help="Try another maxSurgePercent.", min=0, max=100, metavar="N"
        ),
    ] = None,
    finds_surge: Annotated[
        bool,
        typer.Option(
            "--surge",
            help="Find the largest maxSurgePercent that the ResourceQuotas have room for, and "
            "plan with it.",
        ),
    ] = False,
    step: Annotated[
        int | None,
        typer.Option("--step", help="Try another stepSizePercent.", min=0, max=100, metavar="N"),
    ] = None,
    interval: Annotated[
        int | None,
        typer.Option("--interval", help="Try another intervalSeconds.", min=1, metavar="N"),
    ] = None,
    unavailable: Annotated[
        int | None,
        typer.Option(
            "--max-unavailable",
            help="Try another share of capacity that may be unavailable.",
            min=0,
            max=99,
            metavar="N",
        ),
    ] = None,
    gates: Annotated[
        str, typer.Option("--feature-gates", help="Feature gates of raybus: Name=true,Other=false.")
    ] = "",
    output: ReportOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the effect of a manifest on the running service, without changing anything.

    The effect is nothing, a change in place, or a new cluster; with the fields
    that cause it, and its cost. Exit code 1 if the manifest would be rejected,
    or if --surge finds no surge that fits.

    Examples:
    $ raybus plan -f demo.yaml
    $ raybus plan -f demo.yaml --max-surge 50 --step 10
    $ raybus plan -f demo.yaml --surge
    $ raybus plan -k overlays/production
    """
    place = session.where(kubeconfig, context, namespace)
    if finds_surge and surge is not None:
        session.fail(errors.InvalidSpec("--surge finds the surge: leave out --max-surge"))
    try:
        enabled = feature_gates.resolve(feature_gates.parse(gates))
        wanted = [
            each
            for each in manifests.read_all(file, kustomize, recursive=recursive)
            if each.kind == ray_service.KIND
        ]
    except errors.InvalidSpec as problem:
        session.fail(problem)
    if not wanted:
        session.fail(
            errors.InvalidSpec(f"there is no RayService in {', '.join(file or [str(kustomize)])}")
        )
    sizing = Sizing(
        surge=surge,
        step=step,
        interval=interval,
        unavailable=unavailable,
        finds_surge=finds_surge,
    )

    async def work(kube: KubeClient) -> list[Plan]:
        return [
            await _plan(kube, each, namespace or each.namespace or place.namespace, enabled, sizing)
            for each in wanted
        ]

    found = session.run(place, work)
    if output in {Output.JSON, Output.YAML}:
        printing.data(found if len(found) > 1 else found[0], output)
    else:
        for each in found:
            printing.show(picture.draw(each))
    raise SystemExit(1 if any(_is_impossible(each) for each in found) else 0)


def _is_impossible(plan: Plan) -> bool:
    """Return whether the manifest would be rejected, or `--surge` found no surge that fits."""
    has_no_surge = plan.surge is not None and plan.surge.percent is None
    return plan.outcome is PlanOutcome.REFUSED or has_no_surge


async def _plan(
    kube: KubeClient, document: Document, namespace: str, gates: Gates, sizing: Sizing
) -> Plan:
    try:
        snapshot = await reader.read(kube, namespace, document.name)
    except errors.NotFound as problem:
        if session.is_not_served(problem):
            raise
        goal = await reader.create(
            kube, namespace, {**document.body, "metadata": _meta(document, namespace)}
        )
        quotas = await reader.quotas(kube, namespace)
        return plans.created(goal, gates, Snapshot(service=goal, quotas=quotas), now=session.now())
    stored: Body = msgspec.json.decode(await kube.get(RAY_SERVICE, namespace, document.name))
    goal = await reader.replace(kube, namespace, _merged(stored, document))
    found = plans.build(snapshot, goal, gates, sizing, now=session.now())
    if found.outcome is not PlanOutcome.NEW_CLUSTER:
        return found
    return msgspec.structs.replace(found, policy=await read(kube, goal))


def _merged(stored: Body, document: Document) -> Body:
    """Merge a manifest into the stored object as kubectl does: its spec replaces the stored spec.

    Its labels and annotations are added.
    """
    meta: Json = dict(stored["metadata"])
    for field in ("labels", "annotations"):
        given: Json = _meta(document, "").get(field) or {}
        meta[field] = {**(meta.get(field) or {}), **given}
    return {**stored, "metadata": meta, "spec": document.body.get("spec") or {}}


def _meta(document: Document, namespace: str) -> Json:
    meta: Json = document.body.get("metadata") or {}
    return {**meta, "namespace": namespace} if namespace else meta
