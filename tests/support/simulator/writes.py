"""The writes of the simulated services: counted and recorded; the process can be killed before or
after a chosen write.
"""

from common.clock import Clock
from common.kube.resources import RAY_SERVICE
from support.fakes.kube import Request


class Killed(BaseException):
    """Raised where the process is killed."""


class Writes:
    """Counts the writes to the API server and to Serve, and the publishes of upgrade events."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lines: list[tuple[float, str]] = []
        """Each write as text, with the seconds since the beginning."""
        self.count = 0
        self.kill_before: int | None = None
        """Number of the write before which the process is killed; None for none."""
        self.kill_after: int | None = None
        self.publishes = 0
        self.kill_at_publish: tuple[str, int] | None = None
        """`before` or `after`, and the number of the publish at which the process is killed; None
        for none."""

    def note_request(self, request: Request) -> None:
        """Count a write to the API server that begins."""
        self._begin()
        line = _line_of(request)
        if line is not None:
            self.lines.append((self._clock.monotonic(), line))

    def note_put(self, what: str) -> None:
        """Count a PUT to Serve; `what` says whether it begins (`put NAME`) or has ended."""
        if what.startswith("put"):
            line = f"PUT Serve config to {what.removeprefix('put ')}"
            self.lines.append((self._clock.monotonic(), line))
            self._begin()
        else:
            self.end()

    def note_publish(self, side: str) -> None:
        """Count an upgrade event, before and after its publish."""
        self.publishes += side == "before"
        if self.kill_at_publish == (side, self.publishes):
            self.kill_at_publish = None
            raise Killed

    def end(self) -> None:
        """Record that the last write has been carried out."""
        if self.count == self.kill_after:
            self.kill_after = None
            raise Killed

    def _begin(self) -> None:
        self.count += 1
        if self.count == self.kill_before:
            raise Killed


def _line_of(request: Request) -> str | None:
    """Return a write as a line of the trace; None for a repeated Event."""
    if request.kind == "Event":
        is_new = request.verb == "create"
        return f"event {request.body['reason']}: {request.body['note']}" if is_new else None
    if request.kind == "ControllerRevision" and "-goal-" in request.name:
        return f"{request.verb} ControllerRevision of the spec"
    if request.kind == "ControllerRevision":
        return f"{request.verb} ControllerRevision of {request.name.rpartition('-serve-')[0]}"
    if request.subresource != "status" or request.kind != RAY_SERVICE.kind:
        return str(request)
    status = request.body["status"]
    names = [
        status[f"{role}ServiceStatus"].get("rayClusterName", "-") for role in ("active", "pending")
    ]
    conditions = ", ".join(
        f"{each['type']} {each['status']} ({each['reason']})" for each in status["conditions"]
    )
    return f"status: active {names[0]}, pending {names[1]}; {conditions}"
