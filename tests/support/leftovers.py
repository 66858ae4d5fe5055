"""What an installation of raybus leaves behind on a cluster, and what it removes that was not its
own.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from support.manifests import DEPLOY, NAMESPACE

Run = Callable[..., Awaitable[str]]
"""Function that runs kubectl and returns its output."""

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
"""The CRD of UpgradePolicies, which are users' objects, and the APIService that the API server
makes of its group; CRDs stay (docs/installation.md)."""
_FINALIZERS: Final = "<!-- finalizers -->"


async def of_raybus(run: Run) -> list[str]:
    """Return the objects of every kind of the cluster that have our name or are in our namespace;
    the demo counts as a user.
    """
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
    """Return the objects that users have in a namespace and those made for them, with their uids;
    without objects that have our name.
    """
    line = "jsonpath={range .items[*]}{.kind} {.metadata.name}={.metadata.uid}{'\\n'}{end}"
    found = await run("get", kinds, "-n", namespace, "-o", line)
    return dict(each.split("=") for each in found.splitlines() if " raybus-" not in each)


def release() -> str:
    """Return the shell command of docs/installation.md that releases objects which no operator reconciles any more."""
    page = (DEPLOY.parent / "docs" / "installation.md").read_text()
    block = page.partition(_FINALIZERS)[2].partition("```console\n")[2].partition("```")[0]
    assert block.startswith("$ kubectl")
    return block.removeprefix("$ ").replace("\\\n", " ")
