"""`raybus bundle`: the path of the archive, and the report of its content."""

from pathlib import Path
from typing import Annotated

import typer

from common import errors
from common.kube.client import KubeClient
from raybus_cli.access import session
from raybus_cli.bundling import collect
from raybus_cli.bundling.collect import Files
from raybus_cli.completion.names import NameArgument
from raybus_cli.completion.places import ContextOption, KubeconfigOption, NamespaceOption, RaybusNamespaceOption


def bundle(
    name: NameArgument,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Path of the archive; default: raybus-bundle-NAME.tar.gz.")
    ] = None,
    raybus_namespace: RaybusNamespaceOption = "raybus",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Write a tar.gz for a bug report: the RayService, what belongs to it, and the logs of its pods and of raybus.

    It holds no Secret and no value of an environment variable; the logs lose passwords of known forms only. Check it
    before you send it. 'raybus logs NAME --bundle FILE' reads the logs of its pods.

    Examples:
    $ raybus bundle demo
    $ raybus bundle demo -n serving -f demo.tar.gz
    """
    place = session.where(kubeconfig, context, namespace)
    folder = f"raybus-bundle-{name}"
    path = file or Path(f"{folder}.tar.gz")
    now = session.now()

    async def work(kube: KubeClient) -> Files:
        return await collect.collect(kube, place.namespace, name, raybus_namespace, now=now)

    files = session.run(place, work)
    try:
        path.write_bytes(collect.archive(files, folder, now=now))
    except OSError as problem:
        session.fail(errors.InvalidSpec(f"cannot write {path}: {problem.strerror}; name another file with --file"))
    typer.echo(f"{path}: {len(files)} files, without Secrets and values of environment variables")
    if "unseen.txt" in files:
        typer.echo(
            f"{len(files['unseen.txt'].splitlines())} thing(s) could not be read: see unseen.txt in it", err=True
        )
