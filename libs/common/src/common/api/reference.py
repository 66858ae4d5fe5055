"""What an object refers to: one type for backends, parents and our own Services (ADR 43)."""

from typing import Final

import msgspec

GATEWAY_GROUP: Final = "gateway.networking.k8s.io"


class Reference(msgspec.Struct, frozen=True, order=True):
    """An object by group, kind, namespace and name, with all defaults of the API filled in.

    Two References are equal only if they are of the same object. The name has no public field, so
    that no code compares names alone.
    """

    group: str
    kind: str
    namespace: str
    _name: str

    @classmethod
    def service(cls, namespace: str, name: str) -> "Reference":
        """Return the reference of a Service."""
        return cls("", "Service", namespace, name)

    @classmethod
    def gateway(cls, namespace: str, name: str) -> "Reference":
        """Return the reference of a Gateway."""
        return cls(GATEWAY_GROUP, "Gateway", namespace, name)

    @property
    def is_gateway(self) -> bool:
        """Return whether the object is a Gateway."""
        return (self.group, self.kind) == (GATEWAY_GROUP, "Gateway")

    @property
    def place(self) -> tuple[str, str]:
        """Return namespace and name, for a look-up among objects of this kind."""
        return self.namespace, self._name

    def __str__(self) -> str:
        """Return `<kind> <namespace>/<name>`."""
        return f"{self.kind} {self.namespace}/{self._name}"
