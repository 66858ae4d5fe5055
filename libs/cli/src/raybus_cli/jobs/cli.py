"""`raybus submit` and `raybus stop`: options, output and exit codes."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.resources import RAY_JOB
from raybus_cli import manifests, printing, session
from raybus_cli.arguments import (
    ContextOption,
    JobNameArgument,
    KubeconfigOption,
    NamespaceOption,
)
from raybus_cli.control.performing import ActionState, CommandResult
from raybus_cli.jobs import following, manifest, stopping
from raybus_cli.jobs.manifest import ClusterOptions
from raybus_cli.printing import Output, ResultOption
from raybus_cli.reading import kinds, reader
from raybus_cli.show import job_report as reports
from raybus_cli.show.job_report import JobReport

DEFAULTS = ClusterOptions()


def submit(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The entrypoint; with -f optional."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the RayJob; with -f optional.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Manifest of a RayJob; - for standard input."),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help=f"Image of the cluster. Default: {DEFAULTS.image}."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, help=f"Number of workers. Default: {DEFAULTS.workers}."),
    ] = None,
    cpus: Annotated[
        str | None, typer.Option("--cpus", help=f"CPUs of each pod. Default: {DEFAULTS.cpus}.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", help=f"Memory of each pod. Default: {DEFAULTS.memory}."),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus", min=0, help="GPUs of each worker; of the head if there are no workers."
        ),
    ] = None,
    runtime_env: Annotated[
        Path | None,
        typer.Option("--runtime-env", help="YAML or JSON file with Ray's runtime environment."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Exit as soon as the RayJob is created.")
    ] = False,
    output: ResultOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Create a RayJob, print the log of its driver, and exit when it ends.

    The job gets a cluster of its own, which is deleted after its end. With -f
    the manifest describes the cluster; --name and COMMAND replace its name and
    entrypoint. Ctrl-C does not stop the job. Exit code 0 if the job succeeded,
    1 if it failed.

    Examples:
    $ raybus submit --name train --workers 2 --gpus 1 -- python train.py
    $ raybus submit -f job.yaml --no-wait -o name
    """
    given = {
        "image": image,
        "workers": workers,
        "cpus": cpus,
        "memory": memory,
        "gpus": gpus,
    }
    options: Json = {field: value for field, value in given.items() if value is not None}
    access = session.select_access(kubeconfig, context, namespace)
    try:
        body = (
            _build(name, command or [], options, runtime_env)
            if file is None
            else _adopt(file, name, command or [], has_options=bool(options or runtime_env))
        )
        manifest.check(body)
    except errors.InvalidSpec as problem:
        session.fail(problem)
    own = body["metadata"].get("namespace") if namespace is None else None
    scope = own or access.namespace
    report = session.run(
        access, lambda kube: _submit(kube, scope, body, output, is_followed=not no_wait)
    )
    _print(report, output, is_followed=not no_wait)
    raise SystemExit(0 if no_wait or report.has_succeeded else 1)


def _build(name: str | None, command: list[str], options: Json, runtime_env: Path | None) -> Body:
    if name is None or not command:
        raise errors.InvalidSpec(
            "the job needs a name and a command: raybus submit --name train -- python train.py; or "
            "a manifest: -f job.yaml"
        )
    return manifest.build(
        name,
        manifest.format_entrypoint(command),
        msgspec.convert(options, ClusterOptions),
        _read_runtime_env(runtime_env),
    )


def _adopt(file: str, name: str | None, command: list[str], *, has_options: bool) -> Body:
    if has_options:
        raise errors.InvalidSpec(
            "-f cannot be used with options of the cluster or --runtime-env: change the manifest"
        )
    entrypoint = manifest.format_entrypoint(command) if command else ""
    return manifest.adopt(manifests.read(file), name, entrypoint)


def _read_runtime_env(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise errors.InvalidSpec(f"--runtime-env {file} cannot be read: {problem}") from problem


async def _submit(
    kube: KubeClient, namespace: str, body: Body, output: Output, *, is_followed: bool
) -> JobReport:
    name: str = body["metadata"]["name"]
    try:
        await kube.create(RAY_JOB, namespace, body)
    except errors.AlreadyExists as problem:
        raise errors.Rejected(
            f"RayJob {name} exists already in namespace {namespace}: choose another name, or "
            f"delete it with 'kubectl delete rayjob {name} -n {namespace}'"
        ) from problem
    if not is_followed:
        return reports.build(await reader.read_ray_job(kube, namespace, name), session.read_clock())
    printing.print_message(f"{_full_name(name)} created", err=True)
    is_text = output is Output.TEXT

    def write(chunk: bytes) -> None:
        typer.echo(chunk, nl=False, err=not is_text)

    return await following.follow(kube, namespace, name, write)


def _full_name(name: str) -> str:
    return kinds.JOB.format_name(name)


def _print(report: JobReport, output: Output, *, is_followed: bool) -> None:
    """Print the result; on standard error if standard output is the log of a followed job."""
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(report, output)
    elif output is Output.NAME:
        printing.print_message(_full_name(report.name))
    elif is_followed:
        printing.print_message(report.line, err=True)
    else:
        printing.print_message(f"{_full_name(report.name)} created")


def stop(
    name: JobNameArgument,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the RayJob instead of suspending it.")
    ] = False,
    output: ResultOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Stop a RayJob: suspend it, so that its cluster is deleted and the RayJob stays.

    With spec.suspend false it starts again, from the beginning. With --delete
    the RayJob, its status and the log of its driver are deleted as well. A job
    that uses the cluster of a clusterSelector can only be deleted; the cluster
    stays.

    Examples:
    $ raybus stop train
    $ raybus stop rayjob/train -n research --delete
    """
    access = session.select_access(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> None:
        job = await reader.read_ray_job(kube, access.namespace, name)
        if delete:
            await kube.delete(RAY_JOB, access.namespace, name, uid=job.metadata.uid)
        else:
            await kube.patch(RAY_JOB, access.namespace, name, stopping.build_suspension(job))

    session.run(access, work)
    result = CommandResult(
        namespace=access.namespace,
        name=name,
        action="deleted" if delete else "suspended",
        note="" if delete else "it starts again when spec.suspend is false",
        state=ActionState.REQUESTED,
    )
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(result, output)
    elif output is Output.NAME:
        printing.print_message(_full_name(name))
    else:
        note = f" ({result.note})" if result.note else ""
        printing.print_message(f"{_full_name(name)} {result.action}{note}")
