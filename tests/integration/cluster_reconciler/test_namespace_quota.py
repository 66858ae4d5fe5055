"""A ResourceQuota, as deploy/admission/quota.yaml has it, bounds what one namespace may hold; the API server enforces it."""

import msgspec
import pytest
import yaml

from common import errors
from common.api.opaque import Body
from common.kube.resources import RAY_CLUSTER
from integration.cluster_reconciler.conftest import Live
from integration.cluster_reconciler.test_life import QUOTA
from support.builders.ray_cluster import a_ray_cluster
from support.manifests import DEPLOY

pytestmark = [pytest.mark.integration]

EXAMPLE: Body = yaml.safe_load((DEPLOY / "admission" / "quota.yaml").read_text())
KIND = "count/rayclusters.ray.io"
MOST = int(EXAMPLE["spec"]["hard"][KIND])


async def used(live: Live) -> str:
    quota: Body = msgspec.json.decode(
        await live.kube.get(QUOTA, live.namespace, EXAMPLE["metadata"]["name"])
    )
    return quota.get("status", {}).get("used", {}).get(KIND, "")


async def test_a_namespace_has_no_more_ray_clusters_than_its_quota_allows(live: Live) -> None:
    await live.kube.create(QUOTA, live.namespace, EXAMPLE)

    async def is_enforced() -> bool:
        return await used(live) == "0"

    await live.eventually(is_enforced, "the quota is enforced")
    for number in range(MOST):
        await live.apply(a_ray_cluster(f"c{number}", suspend=True))
    with pytest.raises(
        errors.Forbidden, match=f"exceeded quota: ray, requested: {KIND}=1, used: {KIND}={MOST}"
    ):
        await live.apply(a_ray_cluster("one-more", suspend=True))
    await live.kube.delete(RAY_CLUSTER, live.namespace, "c0")

    async def has_room() -> bool:
        return await used(live) == str(MOST - 1)

    await live.eventually(has_room, "the deletion is counted")
    await live.apply(a_ray_cluster("one-more", suspend=True))
