"""Checks whether the ResourceQuotas of a namespace have room for an upgrade."""

from typing import Final

import msgspec

from common import quantity
from common.quantity import QuantityError
from raybus_cli.planning.demand import Amounts
from raybus_cli.reading.snapshot import Quota

REQUESTS: Final = "requests."


class QuotaCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One resource that a quota limits and an upgrade needs more of."""

    quota: str
    resource: str
    hard: str
    used: str
    more: str
    """What the upgrade needs beyond what is used now."""
    is_enough: bool


def judge(quotas: tuple[Quota, ...], now: Amounts, peak: Amounts) -> list[QuotaCheck]:
    """Return a verdict for each resource that is limited and grows; limits of limits are not judged."""
    found: list[QuotaCheck] = []
    for quota in quotas:
        for resource, hard in sorted(quota.status.hard.items()):
            name = resource.removeprefix(REQUESTS)
            if name not in peak:
                continue
            try:
                verdict = _verdict(quota, resource, hard, now.get(name, "0"), peak[name])
            except QuantityError:
                continue
            if verdict is not None:
                found.append(verdict)
    return found


def _verdict(quota: Quota, resource: str, hard: str, now: str, peak: str) -> QuotaCheck | None:
    used = quota.status.used.get(resource, "0")
    more = quantity.parse(peak).add(quantity.parse(now).times(-1))
    if more.compare(quantity.ZERO) <= 0:
        return None
    wanted = quantity.parse(used).add(more)
    return QuotaCheck(
        quota=quota.metadata.name,
        resource=resource,
        hard=hard,
        used=used,
        more=str(more),
        is_enough=wanted.compare(quantity.parse(hard)) <= 0,
    )
