"""What an installation of raybus leaves behind on a cluster, and what it takes along that was not its own."""

from collections.abc import Awaitable, Callable
from typing import Final

from support.manifests import DEPLOY, NAMESPACE

Run = Callable[..., Awaitable[str]]
"""Runs kubectl and returns what it printed."""

USERS_KINDS: Final = (
    "rayservices,rayclusters,services,pods,serviceaccounts,roles,secrets,controllerrevisions"
)
DEMO: Final = "raybus-demo"
_NOISE: Final = {"events", "componentstatuses", "bindings"}
_INSIDE: Final = "pods,services,deployments,jobs,secrets,configmaps,leases,persistentvolumeclaims"
_DEFINED: Final = (
    "customresourcedefinition.apiextensions.k8s.io/upgradepolicies.raybus.io",
    "apiservice.apiregistration.k8s.io/v1alpha1.raybus.io",
)
"""The CRD of UpgradePolicies, which are users' objects, and what the API server makes of its group; CRDs stay (docs/installation.md)."""
_FINALIZERS: Final = "<!-- finalizers -->"


async def of_raybus(run: Run) -> list[str]:
    """Return what bears our name or lies in our namespace, of every kind that the cluster has; the demo is a user."""
    kinds = (await run("api-resources", "--verbs=list", "-o", "name")).split()
    wanted = ",".join(each for each in kinds if each.split(".")[0] not in _NOISE)
    found = (await run("get", wanted, "-A", "-o", "name", "--ignore-not-found")).split()
    inside = (
        await run("get", _INSIDE, "-n", NAMESPACE, "-o", "name", "--ignore-not-found")
    ).split()
    return sorted(
        {*(each for each in found if "raybus" in each.replace(DEMO, "")), *inside}.difference(
            _DEFINED
        )
    )


async def uids(run: Run, namespace: str, kinds: str = USERS_KINDS) -> dict[str, str]:
    """Return what users have in a namespace, and what was made for them, with its identity; not what bears our name."""
    line = "jsonpath={range .items[*]}{.kind} {.metadata.name}={.metadata.uid}{'\\n'}{end}"
    found = await run("get", kinds, "-n", namespace, "-o", line)
    return dict(each.split("=") for each in found.splitlines() if " raybus-" not in each)


def release() -> str:
    """Return the shell command of docs/installation.md that releases objects which no operator reconciles any more."""
    page = (DEPLOY.parent / "docs" / "installation.md").read_text()
    block = page.partition(_FINALIZERS)[2].partition("```console\n")[2].partition("```")[0]
    assert block.startswith("$ kubectl")
    return block.removeprefix("$ ").replace("\\\n", " ")
