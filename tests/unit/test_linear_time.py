"""What reads a text of a tenant, a pod or a dashboard takes time in proportion to its length.

1 MB of the worst texts for each reader: those that are known, and those that a generator finds for
the reader (`support.worst_texts`). The limit is far above what a linear reader needs, and far below
the minutes of a quadratic one; it counts this process's own time.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from common import annotation_record, durations, quantity, targets, untrusted
from common.api import go_json, kubernetes_syntax
from common.kube.pod_protobuf import read_pod
from common.ray import (
    cluster_traits,
    deployed_config,
    go_yaml,
    request_metrics,
    serve_config,
    serve_status,
)
from common.ray.go_yaml import NotYamlError
from common.upgrade import controls, gate_types, policy, prometheus, traffic_record
from raybus_cli.bundling import redact
from raybus_cli.explaining import events, findings, remedies
from raybus_cli.linting import lint
from raybus_cli.logs import selection
from raybus_cli.reading import observing
from raybus_cli.show import cause_texts
from support import worst_texts
from support.builders.protobuf import sized

SIZE: Final = 10**6
LIMIT: Final = 5.0
"""Maximum seconds of processor time for one text."""
REFUSALS: Final = (cluster_traits.VersionError, quantity.QuantityError, NotYamlError, ValueError)

_PAGE: Final = "ray_x 1\nray_serve_num_http_requests_total"
"""Start of a page of metrics."""
_SOURCE: Final = selection.LogSource("pod", "container")
_CHUNK: Final = 4096
"""Bytes of a log that arrive at once."""


def _log_lines(text: str) -> None:
    splitter, log = selection.Splitter(), text.encode(errors="replace")
    for begin in range(0, len(log), _CHUNK):
        for line in splitter.split(log[begin : begin + _CHUNK]):
            selection.render(_SOURCE, line, selection.LineFormat(is_json=True))
    splitter.end()


def _answer(text: str) -> None:
    app = {"status": "RUNNING", "message": text, "deployed_app_config": {"name": text, text: text}}
    answer = {"applications": {text: app}, "proxies": {text: {"status": text, "node_ip": text}}}
    details = serve_status.decode(msgspec.json.encode(answer))
    serve_status.not_serving(details)
    deployed_config.fingerprint(details)
    deployed_config.differences(serve_config.parse("applications: []"), details)


def _page(text: str) -> object:
    return request_metrics.parse((_PAGE + text).encode(errors="replace"))


def _protobuf_pod(text: str) -> None:
    data = text.encode(errors="replace")
    condition = sized(2, sized(6, data))
    read_pod(sized(1, sized(12, sized(1, data) + sized(2, data))) + sized(3, condition))
    read_pod(sized(3, data))


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
    "a pod in protobuf": _protobuf_pod,
    "JSON as Go writes it": go_json.escaped,
    "a text for a terminal": untrusted.plain,
    "JSON that nests too deep": lambda text: untrusted.pruned(text.encode(), 3),
    "Ray's refusal of a config": lambda text: cause_texts.summarize_refusal(
        f"Ray refused the Serve config: {text}", ""
    ),
    "the cause of a stall": cause_texts.find_code,
    "an unschedulable pod": remedies._INSUFFICIENT.findall,  # pyright: ignore[reportPrivateUsage]
    "a line of a log in a bundle": redact.redact_text,
    "the lines of a log": _log_lines,
    "a page of metrics": lambda text: request_metrics.parse(text.encode(errors="replace")),
    "the labels of a metric": lambda text: _page("{" + text),
    "a label of a metric": lambda text: _page('{route="' + text),
    "the value of a metric": lambda text: _page(" " + text),
    "an answer of a dashboard": lambda text: serve_status.decode(text.encode(errors="replace")),
    "the texts in an answer of a dashboard": _answer,
    "a config to send": serve_config.parse,
    "a traffic record": lambda text: annotation_record.decode(text, traffic_record.Record),
    "the record of a policy": lambda text: annotation_record.decode(text, policy.RecordedPolicy),
    "a moment": annotation_record.moment,
    "an approval": controls._APPROVAL.fullmatch,  # pyright: ignore[reportPrivateUsage]
    "a label's key": kubernetes_syntax.label_key_problems,
    "a path of a policy": policy.PATH.fullmatch,
    "a header of a policy": policy.HEADER_VALUE.fullmatch,
    "a name in an Event": events._POD.findall,  # pyright: ignore[reportPrivateUsage]
    "an exception in a message": findings._format_last_exception,  # pyright: ignore[reportPrivateUsage]
    "the fields in a violation": lint._PATH.findall,  # pyright: ignore[reportPrivateUsage]
    "a registry's answer": observing._extract_answer,  # pyright: ignore[reportPrivateUsage]
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
    "an open label": 'a="' + "\\\\" * (SIZE // 2),
    "labels without values": "a=," * (SIZE // 3),
    "lines of a metric": "ray_serve_num_http_requests_total{} 1\n" * (SIZE // 38),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_megabyte_is_read_in_linear_time(reader: Callable[[str], object], text: str) -> None:
    assert worst_texts.seconds(reader, text, refusals=REFUSALS) < LIMIT


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_megabyte_of_the_worst_text_that_is_found_is_read_in_linear_time(
    reader: Callable[[str], object],
) -> None:
    for worst in worst_texts.find(reader, refusals=REFUSALS):
        taken = worst_texts.seconds(reader, worst.of_size(SIZE), refusals=REFUSALS)
        assert taken < LIMIT, str(worst)


def test_a_pattern_that_searches_anew_from_each_position_is_found() -> None:
    worst = worst_texts.find(re.compile("[0-9]+;").search)[0]
    assert {worst.pump} <= {"0", "1"}
