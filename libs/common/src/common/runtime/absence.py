"""Takes the API server's answer that an object is gone, before a watch that hangs reports it.

Otherwise a service would go on to make objects below one that is no more, which the garbage collector deletes.
"""

from collections.abc import Generator
from contextlib import contextmanager

from common import errors
from common.kube.errors import is_gone
from common.runtime.cache import Cache, Object, version_of


@contextmanager
def noticed(cache: Cache, known: Object) -> Generator[None]:
    """Forget an object when a write to it in this block is answered that it is not there; the error goes on."""
    try:
        yield
    except errors.NotFound as problem:
        meta = known.metadata
        if is_gone(problem, meta.name):
            cache.remove(type(known), meta.namespace, meta.name, version=version_of(meta))
        raise
