"""Structured logs: one JSON object per line, a constant message, variables as fields."""

import logging

import structlog
from structlog.typing import Processor


def configure(service: str, *, level: str) -> None:
    """Write the records of structlog and of the standard library to standard error as JSON."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        lambda _logger, _method, event: {**event, "service": service},
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.EventRenamer("msg"),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.addFilter(_is_worth_logging)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # They log every request, which is several per second and service during an upgrade.
    for library in ("aiohttp.access", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for asyncio's warning when a connection that switched to TLS ends.

    Every connection to NATS switches to TLS, so the warning means nothing.
    """
    return not record.getMessage().startswith("returning true from eof_received()")
