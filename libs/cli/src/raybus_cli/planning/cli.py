"""`raybus plan`: plans the change from the stored RayService to a manifest.

The manifest is read as the API server would store it (a dry run). The UpgradePolicies of the
namespace are read as well.
"""

from typing import Annotated

import msgspec
import typer

from common import errors, feature_gates, labels
from common.api import ray_cron_job, ray_job, ray_service
from common.api.meta import Items
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.feature_gates import Gates
from common.kube.client import KubeClient
from common.kube.resources import (
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    UPGRADE_POLICY,
    Resource,
    find_name_violation,
)
from common.ray import serve_writer
from common.upgrade.policy import Stored
from raybus_cli import manifests, printing, session
from raybus_cli.arguments import ContextOption, KubeconfigOption, NamespaceOption
from raybus_cli.manifests import FilenameOption, KustomizeOption, ManifestDocument, RecursiveOption
from raybus_cli.planning import job_plan, job_plan_picture, picture, policies
from raybus_cli.planning import plan as plans
from raybus_cli.planning.job_plan import JobPlan, JobPlanOutcome
from raybus_cli.planning.plan import Sizing, UpgradePlan
from raybus_cli.planning.policies import PolicyPlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.printing import Output, ReportOption
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot

PLANNED_KINDS = (ray_service.KIND, ray_job.KIND, ray_cron_job.KIND)


async def read_policy_plan(kube: KubeClient, service: RayService) -> PolicyPlan | None:
    """Return what the UpgradePolicy of a RayService means for its upgrade.

    The result is None if the RayService follows no policy, or if it follows the default and the
    user may not read policies.
    """
    name = service.metadata.annotations.get(labels.UPGRADE_POLICY, "")
    if name and (why := find_name_violation(UPGRADE_POLICY, name)) is not None:
        return PolicyPlan(
            name=name, problem=f"{labels.UPGRADE_POLICY} is not the name of an UpgradePolicy: {why}"
        )
    try:
        body = await kube.list(UPGRADE_POLICY, service.metadata.namespace)
        stored = msgspec.json.decode(body, type=Items[Stored]).items
        return policies.choose_policy(name, stored, in_steps=serve_writer.asks_for_steps(service))
    except errors.NotFound:
        return policies.choose_policy(name, [])
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
    """Show the effect of a manifest on a running service or job, without changing anything.

    The effect is nothing, a change in place, or a new cluster; with the fields
    that cause it, and its cost. For a RayJob or RayCronJob, the plan shows what an
    attempt creates and requests, and what an edit does to a running job. Exit code
    1 if the manifest would be rejected, or if --surge finds no surge that fits.

    Examples:
    $ raybus plan -f demo.yaml
    $ raybus plan -f demo.yaml --max-surge 50 --step 10
    $ raybus plan -f demo.yaml --surge
    $ raybus plan -f job.yaml
    $ raybus plan -k overlays/production
    """
    access = session.select_access(kubeconfig, context, namespace)
    if finds_surge and surge is not None:
        session.fail(errors.InvalidSpec("--surge finds the surge: leave out --max-surge"))
    try:
        enabled = feature_gates.resolve(feature_gates.parse(gates))
        wanted = [
            document
            for document in manifests.read_all(file, kustomize, recursive=recursive)
            if document.kind in PLANNED_KINDS
        ]
    except errors.InvalidSpec as problem:
        session.fail(problem)
    if not wanted:
        session.fail(
            errors.InvalidSpec(
                f"there is no {' or '.join(PLANNED_KINDS)} in {', '.join(file or [str(kustomize)])}"
            )
        )
    sizing = Sizing(
        surge=surge,
        step=step,
        interval=interval,
        unavailable=unavailable,
        finds_surge=finds_surge,
    )

    async def work(kube: KubeClient) -> list[UpgradePlan | JobPlan]:
        return [
            await _plan_document(
                kube, document, namespace or document.namespace or access.namespace, enabled, sizing
            )
            for document in wanted
        ]

    results = session.run(access, work)
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(results if len(results) > 1 else results[0], output)
    else:
        for plan in results:
            printing.show(
                job_plan_picture.draw(plan) if isinstance(plan, JobPlan) else picture.draw(plan)
            )
    raise SystemExit(1 if any(_is_impossible(plan) for plan in results) else 0)


def _is_impossible(plan: UpgradePlan | JobPlan) -> bool:
    """Return whether the manifest would be rejected, or `--surge` found no surge that fits."""
    if isinstance(plan, JobPlan):
        return plan.outcome is JobPlanOutcome.REFUSED
    has_no_surge = plan.surge is not None and plan.surge.percent is None
    return plan.outcome is PlanOutcome.REFUSED or has_no_surge


async def _plan_document(
    kube: KubeClient, document: ManifestDocument, namespace: str, gates: Gates, sizing: Sizing
) -> UpgradePlan | JobPlan:
    if document.kind == ray_service.KIND:
        return await _plan(kube, document, namespace, gates, sizing)
    resource = RAY_JOB if document.kind == ray_job.KIND else RAY_CRON_JOB
    stored, goal = await _try_manifest(kube, resource, document, namespace)
    quotas = await reader.read_quotas(kube, namespace)
    if resource is RAY_CRON_JOB:
        return job_plan.plan_cron_job(
            None if stored is None else ray_cron_job.decode(stored),
            ray_cron_job.decode(goal),
            gates,
            quotas,
            now=session.read_clock(),
        )
    job = ray_job.decode(goal)
    if stored is None:
        return job_plan.plan_creation(job, gates, quotas)
    return job_plan.plan_change(ray_job.decode(stored), job, gates, quotas)


async def _try_manifest(
    kube: KubeClient, resource: Resource, document: ManifestDocument, namespace: str
) -> tuple[bytes | None, bytes]:
    """Return the stored object, and the object as the API server would store the manifest.

    The stored object is None if no object of that name exists.
    """
    try:
        stored = await kube.get(resource, namespace, document.name)
    except errors.NotFound as problem:
        if session.is_not_served(problem):
            raise
        body = {**document.body, "metadata": _build_metadata(document, namespace)}
        return None, await reader.try_create(kube, resource, namespace, body)
    body = _merge_manifest(msgspec.json.decode(stored), document)
    return stored, await reader.try_replace(kube, resource, namespace, body)


async def _plan(
    kube: KubeClient, document: ManifestDocument, namespace: str, gates: Gates, sizing: Sizing
) -> UpgradePlan:
    try:
        snapshot = await reader.read(kube, namespace, document.name)
    except errors.NotFound as problem:
        if session.is_not_served(problem):
            raise
        goal = await reader.create(
            kube, namespace, {**document.body, "metadata": _build_metadata(document, namespace)}
        )
        quotas = await reader.read_quotas(kube, namespace)
        return plans.plan_creation(
            goal, gates, Snapshot(service=goal, quotas=quotas), now=session.read_clock()
        )
    stored: Body = msgspec.json.decode(await kube.get(RAY_SERVICE, namespace, document.name))
    goal = await reader.replace(kube, namespace, _merge_manifest(stored, document))
    plan = plans.build(snapshot, goal, gates, sizing, now=session.read_clock())
    if plan.outcome is not PlanOutcome.NEW_CLUSTER:
        return plan
    return msgspec.structs.replace(plan, policy=await read_policy_plan(kube, goal))


def _merge_manifest(stored: Body, document: ManifestDocument) -> Body:
    """Merge a manifest into the stored object as kubectl does.

    The manifest's spec replaces the stored spec; its labels and annotations are added.
    """
    meta: Json = dict(stored["metadata"])
    for field in ("labels", "annotations"):
        given: Json = _build_metadata(document, "").get(field) or {}
        meta[field] = {**(meta.get(field) or {}), **given}
    return {**stored, "metadata": meta, "spec": document.body.get("spec") or {}}


def _build_metadata(document: ManifestDocument, namespace: str) -> Json:
    meta: Json = document.body.get("metadata") or {}
    return {**meta, "namespace": namespace} if namespace else meta
