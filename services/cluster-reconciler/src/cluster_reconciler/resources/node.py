"""What the parts of a pod must know about the Ray node they are built for.

Head and worker pods are put together from the same parts in the same order; this module holds their differences.
"""

from functools import cached_property

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import head_service
from common.api.ray_cluster import HeadGroupSpec, RayCluster, WorkerGroupSpec
from common.ray import cluster_traits as traits


class Node(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One Ray node to be: the head of a cluster, or a worker of a group."""

    cluster: RayCluster
    config: Config
    group: HeadGroupSpec | WorkerGroupSpec

    @property
    def is_head(self) -> bool:
        """Return whether the node is the head."""
        return isinstance(self.group, HeadGroupSpec)

    @cached_property
    def head_fqdn(self) -> str:
        """The DNS name of the head."""
        return head_service.fqdn(self.cluster, self.config)

    @cached_property
    def gcs_port(self) -> str:
        """The port of the GCS."""
        return traits.gcs_port(self.cluster)

    @property
    def gcs_address(self) -> str:
        """The address of the GCS as other pods see it."""
        return f"{self.head_fqdn}:{self.gcs_port}"

    @property
    def head_short_name(self) -> str:
        """The first part of the head's DNS name, which old images read from RAY_IP."""
        return self.head_fqdn.partition(".")[0]
