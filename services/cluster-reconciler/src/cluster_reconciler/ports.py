"""What a reconcile needs from outside, put together once in `wiring.py`."""

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.memory import Memories
from cluster_reconciler.metrics import ClusterMetrics
from common.clock import Clock
from common.kube.client import Kube
from common.runtime.cache import Cache
from common.runtime.executor import Executor


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The API server, the state from the bus, and the other dependencies of a reconcile."""

    kube: Kube
    cache: Cache
    executor: Executor
    config: Config
    clock: Clock
    memories: Memories
    metrics: ClusterMetrics
