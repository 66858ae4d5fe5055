"""Remembers what is read from the objects of the API server until one of them changes."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


class Reader(Protocol):
    """An object with methods that read the API server's objects."""

    read_at: int
    """Version of the API server's objects at which `read_of` was filled."""
    read_of: dict[tuple[object, ...], Any]
    """Results of reads, by method and arguments."""

    @property
    def kube(self) -> Versioned: ...


R = TypeVar("R", bound=Reader)


def of_objects(read: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Remember the result of a method until an object changes."""

    @wraps(read)
    def remembered(reader: R, *args: P.args, **kwargs: P.kwargs) -> T:
        if reader.read_at != reader.kube.version:
            reader.read_at = reader.kube.version
            reader.read_of.clear()
        place = (read, args)
        if place not in reader.read_of:
            reader.read_of[place] = read(reader, *args, **kwargs)
        return reader.read_of[place]

    return remembered
