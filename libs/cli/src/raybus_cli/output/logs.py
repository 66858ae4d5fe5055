"""Silences the log of interactive commands: our own errors contain what libraries log."""

import contextlib
import logging
from collections.abc import Generator

import structlog


@contextlib.contextmanager
def silenced() -> Generator[None]:
    """Silence all logs for the length of a block."""
    before = structlog.get_config()["wrapper_class"]
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(wrapper_class=before)
        logging.disable(logging.NOTSET)
