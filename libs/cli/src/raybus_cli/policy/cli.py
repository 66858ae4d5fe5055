"""`raybus policy lint` and `raybus policy try`: options and exit codes."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from common import errors
from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE, UPGRADE_POLICY
from common.upgrade import policy as upgrade_policy
from common.upgrade.candidate import Candidate
from common.upgrade.policy import PolicyError, UpgradePolicy
from common.upgrade.webhook import Checkpoint
from raybus_cli import manifests, printing, session
from raybus_cli.arguments import ContextOption, KubeconfigOption, NamespaceOption
from raybus_cli.linting import cli as linting
from raybus_cli.planning import policies
from raybus_cli.policy import trial
from raybus_cli.policy.trial import Trial
from raybus_cli.printing import Output, ReportOption
from raybus_cli.reading import reader

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Check UpgradePolicies, and try their gates.",
)


@app.callback()
def policy() -> None:
    """Check UpgradePolicies, and try their gates."""


@app.command()
def lint(
    file: Annotated[
        list[str],
        typer.Argument(
            help="Manifest, or a directory of manifests; - for standard input.", metavar="FILE..."
        ),
    ],
    output: ReportOption = Output.TEXT,
) -> None:
    """Check UpgradePolicies without a cluster, by the rules of the API server.

    Each finding names file and field. If the files have a RayService that
    follows a policy and moves all traffic at once, the parts of the policy that
    do not apply are listed. Exit code 1 if a policy would be refused.

    Examples:
    $ raybus policy lint careful.yaml
    $ raybus policy lint policies/ -o json
    """
    try:
        given = manifests.read_all(file, None)
    except errors.InvalidSpec as problem:
        session.fail(problem)
    documents = [document for document in given if document.kind == UPGRADE_POLICY.kind]
    if not documents:
        session.fail(errors.InvalidSpec(f"there is no UpgradePolicy in {', '.join(file)}"))
    services = [document for document in given if document.kind == RAY_SERVICE.kind]
    wrong = {id(document): trial.find_violations(document) for document in documents}
    findings = [
        finding
        for document in documents
        for finding in wrong[id(document)] or trial.advise(document, services)
    ]
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(findings, output)
    else:
        for finding in findings:
            printing.print_message(linting.format_line(finding))
        for document in documents:
            if not wrong[id(document)]:
                valid = trial.parse_policy(document)
                for text in (policies.summarize_policy(valid), *policies.describe_power(valid)):
                    printing.print_message(
                        f"{document.file}: UpgradePolicy {document.name}: {text}"
                    )
    raise SystemExit(1 if any(wrong.values()) else 0)


@app.command("try")
def try_(
    given: Annotated[
        str,
        typer.Argument(help="Name of an UpgradePolicy, or a file with one.", metavar="NAME|FILE"),
    ],
    service: Annotated[
        str, typer.Option("--service", help="RayService with the requests.", metavar="NAME")
    ],
    output: ReportOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Evaluate gates on the requests of a RayService, without changing anything.

    All requests since its nodes started are counted. During an upgrade the new
    cluster is compared with the active one, otherwise the active one with
    itself. Metrics are read through the API server, which needs the right to
    get pods/proxy. Each Prometheus query is sent once, from this machine. Exit
    code 1 if a gate fails.

    Examples:
    $ raybus policy try careful --service demo
    $ raybus policy try careful.yaml --service demo -n serving
    """
    access = session.select_access(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> Trial:
        chosen = (
            _read_from_file(given)
            if _is_file(given)
            else await _read_from_cluster(kube, access.namespace, given)
        )
        return await _try(kube, access.namespace, service.removeprefix("rayservice/"), chosen)

    result = session.run(access, work)
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(result, output)
    else:
        for line in trial.format_trial(result):
            printing.print_message(line)
        for unread in result.unread:
            printing.print_message(
                f"raybus policy: Pod {unread.pod} is left out: {unread.problem}", err=True
            )
    raise SystemExit(1 if result.has_failed else 0)


def _is_file(given: str) -> bool:
    return (
        given == manifests.STDIN
        or Path(given).suffix in manifests.SUFFIXES
        or Path(given).is_file()
    )


def _read_from_file(given: str) -> UpgradePolicy:
    documents = [
        document for document in manifests.read(given) if document.kind == UPGRADE_POLICY.kind
    ]
    if len(documents) != 1:
        raise errors.InvalidSpec(
            f"{given} has {len(documents)} UpgradePolicies; name a file with one"
        )
    try:
        return trial.parse_policy(documents[0])
    except PolicyError as problem:
        raise errors.InvalidSpec(
            f"{given}: {problem}; 'raybus policy lint {given}' lists the lines"
        ) from problem


async def _read_from_cluster(kube: KubeClient, namespace: str, name: str) -> UpgradePolicy:
    try:
        body: Body = msgspec.json.decode(await kube.get(UPGRADE_POLICY, namespace, name))
    except errors.NotFound as problem:
        if session.is_not_served(problem):
            raise errors.InvalidSpec(
                "the cluster does not serve UpgradePolicies: apply "
                "deploy/crds/raybus.io_upgradepolicies.yaml, or name a file"
            ) from problem
        raise session.NoSuchObject(UPGRADE_POLICY, namespace, name) from problem
    try:
        return upgrade_policy.read(name, body.get("spec") or {})
    except PolicyError as problem:
        raise errors.InvalidSpec(f"UpgradePolicy {namespace}/{name}: {problem}") from problem


async def _try(kube: KubeClient, namespace: str, name: str, chosen: UpgradePolicy) -> Trial:
    status = (await reader.read_ray_service(kube, namespace, name)).status
    active, pending = (
        status.active_service_status.ray_cluster_name,
        status.pending_service_status.ray_cluster_name,
    )
    if not active:
        raise errors.Rejected(f"RayService {namespace}/{name} has no active cluster yet")
    known = await trial.measure(kube, namespace, active)
    judged = await trial.measure(kube, namespace, pending) if pending else known
    step = Checkpoint(
        namespace=namespace,
        service=name,
        policy=chosen.name,
        candidate=Candidate(cluster_uid="", config=""),
        old=active,
        new=pending or active,
        weight=0,
    )
    return trial.evaluate(
        namespace, name, chosen, known, judged, await trial.run_queries(chosen, step)
    )
