"""The ports under which the head is reached (spec raycluster §13.6)."""

from collections.abc import Mapping

from cluster_reconciler.observed import Observed
from common.api.core import ServicePort


def compute(observed: Observed, known: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return port name to number; entries are added or overwritten, never removed."""
    if not observed.head_services:
        return dict(known) if known is not None else None
    ports = {port.name: _text(port) for port in observed.head_services[0].spec.ports if port.name}
    return {**(known or {}), **{name: text for name, text in ports.items() if text}}


def _text(port: ServicePort) -> str:
    """Return the node's port, or the container's; empty when neither is known."""
    return str(port.node_port or port.target_port or "")
