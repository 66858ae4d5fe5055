"""The laws that simulations, hostile tenants and chaos tests check; `catalogue` lists them all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

Evidence = TypeVar("Evidence")
Finding = tuple[str, str]
"""The subject that breaks a law (such as a cluster or a route), and a text that says how."""


class Law(msgspec.Struct, Generic[Evidence], frozen=True, kw_only=True):
    """A rule that must hold whatever happens."""

    name: str
    source: str
    """Section of the specification, ADR or architecture rule that demands the law."""
    reads: str
    """The part of the evidence that the check reads."""
    check: Callable[[Evidence], Iterable[Finding]]
    """Function that yields the violations of the law."""


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A violation of a law."""

    law: str
    subject: str
    text: str


def find_broken(laws: Sequence[Law[Evidence]], evidence: Evidence) -> Iterator[Broken]:
    """Yield the violations of any of the laws."""
    for law in laws:
        for subject, text in law.check(evidence):
            yield Broken(law=law.name, subject=subject, text=text)


def by_first_word(
    check: Callable[[Evidence], Iterable[str]],
) -> Callable[[Evidence], Iterator[Finding]]:
    """Return a check for texts that begin with their subject."""

    def find(evidence: Evidence) -> Iterator[Finding]:
        return ((text.split()[0], text) for text in check(evidence))

    return find
