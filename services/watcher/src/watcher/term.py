"""The term of a leader: what its Lease and its sessions share."""

import asyncio


class Term:
    """One replica's time as the leader, from its preparation on."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        """Set once this replica leads; until then nothing may be published."""
        self.prepared = asyncio.Event()
        """Set while all that is to be published is listed."""
        self.is_handed_over = False
        """Whether the leader before has let go of a complete stream for this replica, which had begun its preparation."""
