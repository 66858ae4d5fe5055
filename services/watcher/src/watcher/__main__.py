"""Entry point of `python -m watcher`, which publishes changes in Kubernetes to the bus."""

from common.runtime import process
from watcher import leadership, wiring

if __name__ == "__main__":
    process.exit_process(
        process.run(
            "watcher",
            wiring.serve,
            cleanup_seconds=leadership.PREPARE_SECONDS + process.CLEANUP_SECONDS,
        )
    )
