"""A client of one user: sends a request to the API server only if a SubjectAccessReview grants this user its attributes.

The credentials of the request are those of this program, so this check is the only one of the user's rights.
"""

from collections.abc import Mapping
from typing import Protocol

from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from raybus_cli.access.session import USER_AGENT
from raybus_cli.dashboard.incluster import attributes
from raybus_cli.dashboard.incluster.attributes import Attributes
from raybus_cli.dashboard.incluster.identity import Identity


class Rights(Protocol):
    """The rights of users."""

    async def require(self, identity: Identity, wanted: Attributes) -> None:
        """Return if the user has a right; raise if not."""
        ...


def client(config: RestConfig, identity: Identity, rights: Rights) -> KubeClient:
    """Return the client of a user."""

    async def authorize(method: str, path: str, query: Mapping[str, str]) -> None:
        await rights.require(identity, attributes.parse(method, path, query))

    return KubeClient(config, user_agent=USER_AGENT, authorize=authorize)
