"""References to objects: one type for backends, parents and raybus' own Services (ADR 43)."""

from typing import Final

import msgspec

GATEWAY_GROUP: Final = "gateway.networking.k8s.io"


class Reference(msgspec.Struct, frozen=True, order=True):
    """An object by group, kind, namespace and name, with the API's defaults filled in.

    Two References are equal only if they refer to the same object. The name is private, so that
    code cannot compare names alone.
    """

    group: str
    kind: str
    namespace: str
    _name: str

    @classmethod
    def service(cls, namespace: str, name: str) -> "Reference":
        """Return the reference to a Service."""
        return cls("", "Service", namespace, name)

    @classmethod
    def gateway(cls, namespace: str, name: str) -> "Reference":
        """Return the reference to a Gateway."""
        return cls(GATEWAY_GROUP, "Gateway", namespace, name)

    @property
    def is_gateway(self) -> bool:
        return (self.group, self.kind) == (GATEWAY_GROUP, "Gateway")

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and name, to look up an object whose kind is known."""
        return self.namespace, self._name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self._name}"
