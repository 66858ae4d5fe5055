"""Selects kubeconfig, context and namespace by kubectl's rules.

The first of these that is set wins: the option `--kubeconfig` (one path), $KUBECONFIG (paths joined
by colons), ~/.kube/config. A pod without any of them uses its own ServiceAccount.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import yaml

from common import errors

MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE: Final = "default"
LOCAL_CLUSTER: Final = "export KUBECONFIG=$(raybus cluster kubeconfig)"
"""The shell command that selects the cluster of `raybus cluster up`."""


class NoCluster(errors.Terminal):
    """No kubeconfig can be read, or the requested context is not in it."""


class KubeAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and the namespace that a command works on."""

    kubeconfig: Path | None
    """One path, or several joined by colons as in $KUBECONFIG; None for the pod's
    ServiceAccount.
    """
    context: str | None = None
    namespace: str = DEFAULT_NAMESPACE

    def build_kubectl_options(self) -> tuple[list[str], dict[str, str]]:
        """Return the options and environment variables that make kubectl use the same cluster."""
        options = [] if self.context is None else ["--context", self.context]
        if self.kubeconfig is None:
            return options, {}
        if self.kubeconfig.exists():  # one file, whose path may have colons
            return [*options, "--kubeconfig", str(self.kubeconfig)], {}
        return options, {"KUBECONFIG": str(self.kubeconfig)}


def find(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    *,
    env: Mapping[str, str],
    mounted: Path = MOUNTED,
) -> KubeAccess:
    """Select the cluster and the namespace by a command's options and the environment.

    Raises `NoCluster` if no kubeconfig can be read or the context is not in it. `mounted` is the
    directory of the pod's ServiceAccount token.
    """
    files, is_default = _list_files(kubeconfig, env)
    if is_default and not files[0].exists() and (mounted / "token").exists():
        own = (mounted / "namespace").read_text().strip()
        return KubeAccess(kubeconfig=None, namespace=namespace or own or DEFAULT_NAMESPACE)
    documents = [_read(file) for file in files if file.exists()]
    if not documents:
        names = ", ".join(map(str, files))
        remedy = "name one with --kubeconfig, or set KUBECONFIG"
        if is_default:
            remedy += f" ('{LOCAL_CLUSTER}' for the cluster of 'raybus cluster up')"
        raise NoCluster(f"there is no kubeconfig {names}: {remedy}")
    contexts = _merge_contexts(documents)
    chosen = context or next(
        (
            str(document["current-context"])
            for document in documents
            if document.get("current-context")
        ),
        "",
    )
    if chosen not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        what = (
            f"context {chosen!r} is not in the kubeconfig"
            if chosen
            else "the kubeconfig has no current-context"
        )
        raise NoCluster(f"{what}; choose one with --context (known: {known})")
    path = Path(":".join(str(path) for path in files if path.exists()))
    own = str(contexts[chosen].get("namespace") or DEFAULT_NAMESPACE)
    return KubeAccess(kubeconfig=path, context=chosen, namespace=namespace or own)


def list_contexts(kubeconfig: str | None, *, env: Mapping[str, str]) -> list[str]:
    """Return the names of all contexts, sorted; empty if there is no kubeconfig.

    Raises `NoCluster` if a kubeconfig exists and cannot be read.
    """
    files, _ = _list_files(kubeconfig, env)
    return sorted(_merge_contexts([_read(file) for file in files if file.exists()]))


def _list_files(option: str | None, env: Mapping[str, str]) -> tuple[list[Path], bool]:
    """Return the paths of possible kubeconfigs, and whether they are the default path."""
    if option:
        return [Path(option)], False
    if listed := [Path(part) for part in env.get("KUBECONFIG", "").split(":") if part]:
        return listed, False
    return [Path(env.get("HOME", "~")).expanduser() / ".kube" / "config"], True


def _read(file: Path) -> dict[str, Any]:
    try:
        document: object = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not YAML"
        raise NoCluster(
            f"cannot read kubeconfig {file}: {why}; name another with --kubeconfig"
        ) from problem
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def _merge_contexts(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the contexts by name; if two files define the same name, the first file wins."""
    contexts: dict[str, dict[str, Any]] = {}
    for document in documents:
        for context in cast("list[dict[str, Any]]", document.get("contexts") or []):
            contexts.setdefault(
                str(context.get("name", "")), cast("dict[str, Any]", context.get("context") or {})
            )
    return contexts
