"""OpenShift's security context constraint `restricted-v2`, as its admission applies it to a pod.

A pod that names no user and group gets them from the range of its namespace. A pod that names one
outside the range is refused; this applies to every fixed number, since ranges differ by namespace.
"""

from collections.abc import Iterator
from typing import Final

from support.manifests import Document

UIDS: Final = range(1_000_680_000, 1_000_690_000)
"""Range of user ids in the annotation `openshift.io/sa.scc.uid-range` of an example namespace."""
VOLUMES: Final = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
}
CAPABILITIES: Final = {"NET_BIND_SERVICE"}
"""Capabilities that a container may add; it may drop any."""
HOST: Final = ("hostNetwork", "hostPID", "hostIPC")


def violations(pod: Document) -> list[str]:
    """Return the fields of a pod spec that restricted-v2 refuses, each with its value."""
    return list(_violations(pod))


def _violations(pod: Document) -> Iterator[str]:
    context = pod.get("securityContext", {})
    yield from (f"{name}={pod[name]}" for name in HOST if pod.get(name))
    if context.get("fsGroup", UIDS[0]) not in UIDS:
        yield f"fsGroup={context['fsGroup']}"
    if "sysctls" in context:
        yield f"sysctls={context['sysctls']}"
    yield from _shared(context)
    for volume in pod.get("volumes", []):
        yield from (f"volume {kind}" for kind in volume.keys() - VOLUMES - {"name"})
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in pod.get(kind, []):
            yield from (f"{container['name']}: {each}" for each in _container(container))


def _container(container: Document) -> Iterator[str]:
    context = container.get("securityContext", {})
    yield from _shared(context)
    for name in ("privileged", "allowPrivilegeEscalation"):
        if context.get(name):
            yield f"{name}={context[name]}"
    for name in sorted(set(context.get("capabilities", {}).get("add", [])) - CAPABILITIES):
        yield f"capabilities.add={name}"
    yield from (
        f"hostPort={port['hostPort']}"
        for port in container.get("ports", [])
        if port.get("hostPort")
    )


def _shared(context: Document) -> Iterator[str]:
    """Check the fields that pods and containers have in common."""
    if context.get("runAsUser", UIDS[0]) not in UIDS:
        yield f"runAsUser={context['runAsUser']}"
    seccomp = context.get("seccompProfile", {}).get("type", "RuntimeDefault")
    if seccomp != "RuntimeDefault":
        yield f"seccompProfile={seccomp}"
    if "seLinuxOptions" in context:
        yield f"seLinuxOptions={context['seLinuxOptions']}"
