"""Enforces NetworkPolicies: translates them and the pods that they select into nftables rules for
the node that routes between those pods. Does no I/O.

The rules follow Kubernetes: a pod that no policy selects for a direction accepts all traffic in it;
a selected pod accepts what any rule of its policies admits. Answers to admitted connections pass.
Named ports are not supported, since these pods are only addresses.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from common.api.opaque import Body, Json

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_HEADER: Final = """\
table inet policies {
  chain forward {
    type filter hook forward priority 0; policy accept;
    ct state established,related accept
"""
REFUSE: Final = "reject with icmpx type admin-prohibited"


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with the labels that selectors match, and its address."""

    name: str
    namespace: str
    address: str
    labels: dict[str, str] = {}


def ruleset(pods: Sequence[Pod], policies: Sequence[Body]) -> str:
    """Return the nftables rules that enforce policies between pods."""
    jumps, chains = list[str](), list[str]()
    for pod in pods:
        for direction, field, peers in (("Egress", "saddr", "to"), ("Ingress", "daddr", "from")):
            selecting = [
                each
                for each in policies
                if _selects(each, pod) and direction in each["spec"]["policyTypes"]
            ]
            if not selecting:
                continue
            chain = f"{direction.lower()}_{pod.name}"
            jumps.append(f"    ip {field} {pod.address} jump {chain}")
            rules = [
                each for policy in selecting for each in _rules(policy, direction, peers, pods)
            ]
            body = "".join(f"    {each} return\n" for each in rules)
            chains.append(f"  chain {chain} {{\n{body}    {REFUSE}\n  }}\n")
    # chains stand before the jumps to them
    return (
        _HEADER.replace("  chain forward", "".join(chains) + "  chain forward")
        + "\n".join(jumps)
        + "\n  }\n}\n"
    )


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects labels; an empty one selects all."""
    wanted: dict[str, str] = (selector or {}).get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    expressions: list[Json] = (selector or {}).get("matchExpressions") or []
    return all(_holds(each, labels) for each in expressions)


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    values: list[str] = expression.get("values") or []
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def _selects(policy: Body, pod: Pod) -> bool:
    return policy["metadata"]["namespace"] == pod.namespace and matches(
        policy["spec"]["podSelector"], pod.labels
    )


def _rules(policy: Body, direction: str, peers: str, pods: Sequence[Pod]) -> Iterator[str]:
    """Yield the nftables conditions under which one policy admits a packet."""
    field = "daddr" if direction == "Egress" else "saddr"
    rules: list[Json] = policy["spec"].get(direction.lower()) or []
    for rule in rules:
        sources = (
            [""]
            if not rule.get(peers)
            else [each for peer in rule[peers] for each in _addresses(peer, policy, pods)]
        )
        for source in sources:
            where = f"ip {field} {source} " if source else ""
            for port in _ports(rule):
                yield f"{where}{port}".strip()


def _addresses(peer: Json, policy: Body, pods: Sequence[Pod]) -> Iterator[str]:
    if (block := peer.get("ipBlock")) is not None:
        excluded: list[str] = block.get("except") or []
        yield block["cidr"] + (f" ip daddr != {{ {', '.join(excluded)} }}" if excluded else "")
        return
    for pod in pods:
        spaces = {NAMESPACE_NAME: pod.namespace}
        in_space = (
            matches(peer["namespaceSelector"], spaces)
            if "namespaceSelector" in peer
            else pod.namespace == policy["metadata"]["namespace"]
        )
        if in_space and matches(peer.get("podSelector"), pod.labels):
            yield pod.address


def _ports(rule: Json) -> list[str]:
    """Return the nftables condition on the port for each port that a rule names; an empty condition
    admits all ports.
    """
    found: list[dict[str, Any]] = rule.get("ports") or []
    if not found:
        return [""]
    made: list[str] = []
    for each in found:
        protocol = each.get("protocol", "TCP").lower()
        if "port" not in each:
            made.append(f"meta l4proto {protocol}")
            continue
        last = f"-{each['endPort']}" if "endPort" in each else ""
        made.append(f"{protocol} dport {int(each['port'])}{last}")
    return made
