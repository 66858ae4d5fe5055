"""(builder follows)"""

from collections.abc import Sequence

from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.settings import Settings


async def build(names: Sequence[str], settings: Settings, progress: Progress) -> None:
    """Build."""
    raise ClusterError(f"missing {names}")
