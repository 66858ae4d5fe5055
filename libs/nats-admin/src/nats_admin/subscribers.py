"""Named subscribers: external readers of raybus's events, limited to their namespaces.

A named subscriber has a key and one durable pull consumer with its name, which delivers the events
of its namespaces. The process that maintains the streams creates the consumer. The subscriber
itself may not create consumers, or it could create thousands and read the events of all tenants.
"""

import argparse
from typing import Final

import msgspec
import re2

from common import errors
from common.api.kubernetes_syntax import dns_1123_problems
from common.bus import subjects
from common.bus.streams import SECOND, Config

_NAME: Final = re2.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
MAX_SUBSCRIBERS: Final = 100
"""Maximum number of named subscribers of an installation. Each one costs the server a consumer."""
MAX_UNACKNOWLEDGED_MESSAGES: Final = 1_000
ACK_WAIT: Final = 30 * SECOND


class NamedSubscriber(msgspec.Struct, frozen=True):
    """A named subscriber, and the namespaces whose events it may read.

    No namespaces mean all namespaces.
    """

    name: str
    namespaces: tuple[str, ...] = ()

    @property
    def user(self) -> str:
        """The name of the subscriber's NATS user.

        Its public key is in the ConfigMap `nats-keys-named-subscribers`.
        """
        return f"subscriber-{self.name}"

    def build_consumer_config(self, *, replicas: int = 1) -> Config:
        """Return the subscriber's consumer configuration for the JetStream API.

        `replicas` is the number of servers that store the consumer's position.
        """
        filters = [subjects.build_events_filter(namespace) for namespace in self.namespaces] or [
            subjects.ALL_EVENTS
        ]
        return {
            "name": self.name,
            "durable_name": self.name,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT,
            "max_ack_pending": MAX_UNACKNOWLEDGED_MESSAGES,
            "filter_subjects": filters,
            "num_replicas": replicas,
        }


def parse_subscribers(text: str) -> tuple[NamedSubscriber, ...]:
    """Parse `team-a=ns1,ns2;auditor`: names of subscribers with their namespaces.

    A subscriber without namespaces may read the events of all namespaces.

    Raises:
        InvalidSpec: A name or a namespace is illegal, a name repeats, or there are too many names.
    """
    subscribers = tuple(_parse_subscriber(part.strip()) for part in text.split(";") if part.strip())
    names = [subscriber.name for subscriber in subscribers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise errors.InvalidSpec(
            f"subscribers: {twice[0]!r} stands twice; write one entry with all its namespaces"
        )
    if len(subscribers) > MAX_SUBSCRIBERS:
        raise errors.InvalidSpec(
            f"subscribers: {len(subscribers)} are named, at most {MAX_SUBSCRIBERS} can be; let "
            "some share a key"
        )
    return subscribers


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option `--subscribers`, whose value is a tuple of `NamedSubscriber`."""
    parser.add_argument(
        "--subscribers",
        type=_parse_option,
        default=(),
        metavar="NAME=NS1,NS2;NAME",
        help="readers of events outside raybus with a key and a consumer of their own, and their "
        "namespaces",
    )


def _parse_option(text: str) -> tuple[NamedSubscriber, ...]:
    try:
        return parse_subscribers(text)
    except errors.InvalidSpec as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _parse_subscriber(text: str) -> NamedSubscriber:
    name, is_limited, names_text = text.partition("=")
    namespaces = (
        tuple(dict.fromkeys(part.strip() for part in names_text.split(","))) if is_limited else ()
    )
    if not _NAME.fullmatch(name):
        raise errors.InvalidSpec(
            f"subscribers: {name!r} is no name: use up to 32 of a-z, 0-9 and '-'"
        )
    for namespace in namespaces:
        if dns_1123_problems(namespace):
            raise errors.InvalidSpec(
                f"subscribers: {namespace!r}, of {name!r}, is no namespace; write "
                "NAME=NS1,NS2;NAME=NS3"
            )
    return NamedSubscriber(name, namespaces)
