"""Reads the UpgradePolicies of a namespace for a plan."""

import msgspec

from common import errors, labels
from common.api.meta import Items
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import UPGRADE_POLICY, illegal_name
from common.ray import serve_writer
from common.upgrade.policy import Stored
from raybus_cli.planning import policies
from raybus_cli.planning.policies import PolicyPlan


async def read(kube: KubeClient, service: RayService) -> PolicyPlan | None:
    """Return what the policy of a RayService means; None where it follows none, or the caller may not read it."""
    name = service.metadata.annotations.get(labels.UPGRADE_POLICY, "")
    if name and (why := illegal_name(UPGRADE_POLICY, name)) is not None:
        return PolicyPlan(name=name, problem=f"{labels.UPGRADE_POLICY} is not the name of an UpgradePolicy: {why}")
    try:
        body = await kube.list(UPGRADE_POLICY, service.metadata.namespace)
        found = msgspec.json.decode(body, type=Items[Stored]).items
        return policies.chosen(name, found, in_steps=serve_writer.asks_for_steps(service))
    except errors.NotFound:
        return policies.chosen(name, [])
    except (errors.Forbidden, msgspec.DecodeError) as problem:
        return PolicyPlan(name=name, problem=f"it cannot be read: {problem}") if name else None
