"""How many requests a Serve proxy works on, from the metrics that Ray exports for its node.

Serve's REST API does not tell it. Names checked against Ray 2.60: `ray_serve_num_ongoing_http_requests` and its gRPC
sibling. A proxy that never had a request exports no such line.
"""

import math
from typing import Final

NAMES: Final = (b"ray_serve_num_ongoing_http_requests", b"ray_serve_num_ongoing_grpc_requests")
METRIC: Final = b"ray_"
"""Every metric of a Ray node begins so; without any, it was not Ray that answered."""


def count(exposition: bytes) -> int | None:
    """Return the number of ongoing requests in a text of Prometheus's format; None when the text tells nothing."""
    total, is_ray = 0.0, False
    for line in exposition.splitlines():
        is_ray = is_ray or line.startswith(METRIC)
        if not line.startswith(NAMES):
            continue
        name, _, rest = line.partition(b"{")
        value = rest.rpartition(b"}")[2] if rest else line.partition(b" ")[2]
        if name.partition(b" ")[0] not in NAMES:
            continue
        number = _number(value)
        if number is None:
            return None
        total += number
    return math.ceil(total) if is_ray else None


def _number(text: bytes) -> float | None:
    try:
        number = float(text.split()[0])
    except (ValueError, IndexError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
