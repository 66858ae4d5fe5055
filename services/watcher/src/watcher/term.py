"""The term of a leader, which its election and its sessions share."""

import asyncio


class Term:
    """The time for which one replica leads, including the time in which it prepares to lead."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        """Set once this replica leads. Nothing may be published before."""
        self.prepared = asyncio.Event()
        """Set while the current session has listed all objects."""
        self.is_handed_over = False
        """Whether the previous leader handed over a complete stream to this replica."""
