"""The options that name a cluster and a namespace, with their completion; an error yields no candidates."""

import os
from typing import Annotated, Any

import typer

from common import errors
from common.kube.resources import NAMESPACE
from raybus_cli.access import kubeconfig as kubeconfigs
from raybus_cli.completion import names


def contexts(ctx: Any, incomplete: str) -> list[str]:
    """Return the contexts of the kubeconfig that begin so."""
    try:
        found = kubeconfigs.contexts(ctx.params.get("kubeconfig"), env=os.environ)
    except errors.RaybusError:
        return []
    return [each for each in found if each.startswith(incomplete)]


def namespaces(ctx: Any, incomplete: str) -> list[str]:
    """Return the namespaces of the cluster that begin so."""
    return names.names_of(NAMESPACE, ctx.params, incomplete)


KubeconfigOption = Annotated[
    str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig; default: $KUBECONFIG or ~/.kube/config.")
]
ContextOption = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig; default: the current one.", autocompletion=contexts),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace; default: that of the context.", autocompletion=namespaces),
]
RaybusNamespaceOption = Annotated[
    str, typer.Option("--raybus-namespace", help="Namespace of raybus.", autocompletion=namespaces)
]
