"""What the API server serves, asked once at the start (spec raycluster §17.5, §18.2)."""

import asyncio
from typing import Final

import msgspec
import structlog

from cluster_reconciler.batch import workload_aware
from cluster_reconciler.config import Config
from cluster_reconciler.resources import ingress
from common import errors
from common.feature_gates import Gate
from common.kube.client import KubeClient

log = structlog.get_logger()

CERT_MANAGER: Final = "cert-manager.io/v1"
PAUSE: Final = 2.0
"""Seconds between attempts while the API server does not answer."""


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """One served version of a group."""

    group_version: str


class Group(msgspec.Struct, frozen=True):
    """One served group."""

    name: str
    versions: list[Version] = []


class GroupList(msgspec.Struct, frozen=True):
    """The answer to a question for all groups."""

    groups: list[Group] = []


async def served(kube: KubeClient) -> GroupList:
    """Ask until there is an answer."""
    while True:
        try:
            return msgspec.json.decode(await kube.request("GET", "/apis"), type=GroupList)
        except errors.Unavailable as problem:
            log.warning("the API server is awaited", error=str(problem))
            await asyncio.sleep(PAUSE)
        except errors.Forbidden as problem:
            log.warning("the API groups may not be listed: OpenShift is not detected", error=str(problem))
            return GroupList()


def adapt(config: Config, found: GroupList) -> Config:
    """Return the configuration for this API server; raise `InvalidSpec` when it lacks what a gate needs."""
    versions = {version.group_version for group in found.groups for version in group.versions}
    if config.has(Gate.KUBERNETES_WAS) and workload_aware.GROUP_VERSION not in versions:
        raise errors.InvalidSpec(
            "no served scheduling.k8s.io API version available for kubernetes-was-v1alpha2: "
            f"{workload_aware.GROUP_VERSION} is not served; switch the KubernetesWAS feature gate off"
        )
    return msgspec.structs.replace(
        config,
        is_openshift=any(group.name in ingress.OPENSHIFT_GROUPS for group in found.groups),
        has_cert_manager=CERT_MANAGER in versions,
    )
