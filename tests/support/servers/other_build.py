"""Runs a service of a build with another form of Pods: `python -P other_build.py FORM MODULE
[KIND…]`.

That build reads the labels of a Pod from a field of its own, `tags`. As 1.2 it publishes them in
both places, as 2.0 in the new one alone. So a reader that took the messages of another build would
find a RayCluster without pods, and make them again. Each KIND has another number, too, and the same
fields; so services that do not read Pods wait for their watcher as well.
"""

import runpy
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from common.bus import forms, messages
from common.bus.forms import MessageForm
from common.bus.messages import Message, ObjectState, WireMessage

_, FORM, MODULE, *KINDS = sys.argv
MAJOR, MINOR = map(int, FORM.split("."))
OURS: Final = "tags"
THEIRS: Final = "labels"

encode, decode = messages.encode, messages.decode


def _with(state: ObjectState, metadata: dict[str, Any]) -> ObjectState:
    body: dict[str, Any] = msgspec.json.decode(state.body)
    return msgspec.structs.replace(state, body=msgspec.json.encode(body | {"metadata": metadata}))


def _metadata(state: ObjectState) -> dict[str, Any]:
    return msgspec.json.decode(state.body)["metadata"]


def encode_ours(message: Message) -> WireMessage:
    """Encode a message in the form of the other build."""
    if isinstance(message, ObjectState) and message.kind == "Pod":
        metadata = _metadata(message)
        metadata[OURS] = metadata.get(THEIRS, {})
        if MAJOR > 1:
            metadata.pop(THEIRS, None)
        message = _with(message, metadata)
    return encode(message)


def decode_ours(subject: str, headers: Mapping[str, str], payload: bytes) -> Message:
    """Decode a message as the other build does."""
    message = decode(subject, headers, payload)
    if isinstance(message, ObjectState) and message.kind == "Pod":
        metadata = _metadata(message)
        message = _with(message, metadata | {THEIRS: metadata.get(OURS, {})})
    return message


if __name__ == "__main__":
    forms.FORMS.update(dict.fromkeys(("Pod", *KINDS), MessageForm(MAJOR, MINOR)))
    forms.MIN_MINOR.clear()
    messages.encode, messages.decode = encode_ours, decode_ours
    sys.argv = [MODULE]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
