"""Structured logs: one JSON object a line, a constant message, data in keys, the object bound once per reconcile."""

import logging

import structlog
from structlog.typing import Processor


def configure(service: str, *, level: str) -> None:
    """Send structlog's and the standard library's records to the standard error as JSON."""
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
    # They log every request, which are several a second for each service in the middle of an upgrade.
    for library in ("aiohttp.access", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Drop what asyncio logs at the end of each connection that became TLS after its greeting, as all to NATS do."""
    return not record.getMessage().startswith("returning true from eof_received()")
