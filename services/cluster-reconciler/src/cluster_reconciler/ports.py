"""What a look needs from the world, put together once in `wiring.py`."""

from collections.abc import Callable

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.memory import Memories
from cluster_reconciler.metrics import Metrics
from common.bus.cache import Cache
from common.kube.client import Kube
from common.kube.events import EventRecorder
from common.runtime.clock import Clock


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The API server, the state that the bus told, and what goes beside them."""

    kube: Kube
    cache: Cache
    events: EventRecorder
    config: Config
    clock: Clock
    memories: Memories
    metrics: Metrics
    draw_token: Callable[[], str]
    """Draws the secret of a cluster with token authentication."""
