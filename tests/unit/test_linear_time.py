"""What reads a text of a tenant, a pod or a dashboard takes time in proportion to its length.

1 MB of the worst text that is known for each reader. The limit is far above what a linear reader
needs, and far below the minutes of a quadratic one; it counts this process's own time.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from common import durations, quantity, targets, untrusted
from common.api import go_json, kubernetes_syntax
from common.ray import cluster_traits, go_yaml
from common.ray.go_yaml import NotYamlError
from common.upgrade import gate_types, prometheus
from raybus_cli.bundling import redact
from raybus_cli.explaining import remedies
from raybus_cli.reading import observing
from raybus_cli.show import phase

SIZE: Final = 10**6
LIMIT: Final = 5.0
"""Seconds of processor time."""
REFUSALS: Final = (
    cluster_traits.VersionError,
    quantity.QuantityError,
    NotYamlError,
    ValueError,
)

READERS: Final[dict[str, Callable[[str], object]]] = {
    "a Ray version": cluster_traits.parse_version,
    "a quantity": quantity.parse,
    "a duration": durations.parse_or_seconds,
    "a subdomain": kubernetes_syntax.dns_1123_subdomain_problems,
    "a label": kubernetes_syntax.label_value_problems,
    "a URL of a gate": gate_types.is_url,
    "a query of a gate": gate_types.QUERY.fullmatch,
    "the placeholders of a query": gate_types.PLACED.fullmatch,
    "a value of Prometheus": prometheus._NUMBER.fullmatch,  # pyright: ignore[reportPrivateUsage]
    "gate targets": targets.read,
    "a Serve config": go_yaml.load,
    "JSON as Go writes it": go_json.escaped,
    "a text for a terminal": untrusted.plain,
    "JSON that nests too deep": lambda text: untrusted.pruned(text.encode(), 3),
    "Ray's refusal of a config": lambda text: phase.by_field(
        f"Ray refused the Serve config: {text}", ""
    ),
    "the cause of a stall": phase.of_text,
    "an unschedulable pod": remedies._INSUFFICIENT.findall,  # pyright: ignore[reportPrivateUsage]
    "a line of a log in a bundle": redact.text,
    "a registry's answer": observing._answer,  # pyright: ignore[reportPrivateUsage]
}
TEXTS: Final = {
    "digits and a line feed": "1" * SIZE + "\n",
    "dots": "1." * (SIZE // 2) + "\n",
    "dashes": "a-" * (SIZE // 2) + "!",
    "blanks": " " * SIZE + "x",
    "quotes": '"' * SIZE,
    "brackets": "[" * SIZE,
    "escaped quotes": '["' + '\\"' * (SIZE // 2),
    "locations": "'loc': (" * (SIZE // 8),
    "words with arrows": "a -> " * (SIZE // 5) + "\n (",
    "sequences for a terminal": "\x1b[" * (SIZE // 2),
    "titles without an end": "\x1b]" * (SIZE // 2),
    "pairs with colons": "a:" * (SIZE // 2) + " ",
    "dollar signs": "$" * SIZE + "a",
    "names of secrets": "token" * (SIZE // 5),
    "values without an end": 'token="' * (SIZE // 7),
    "lists without an end": "token=['" * (SIZE // 8),
    "users of URLs": "http://a@" * (SIZE // 9),
    "flags": "--key " * (SIZE // 6),
    "failed to pull": "failed to pull " * (SIZE // 15),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_megabyte_is_read_in_linear_time(reader: Callable[[str], object], text: str) -> None:
    began = time.process_time()
    with suppress(*REFUSALS):
        reader(text)
    assert time.process_time() - began < LIMIT
