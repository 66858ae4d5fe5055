"""`python -m traffic_manager`: runs the service until it is stopped."""

import common.headless  # noqa: F401  # pyright: ignore[reportUnusedImport]  (first of all)
from common.runtime import process
from traffic_manager import wiring

if __name__ == "__main__":
    process.leave(process.run("traffic-manager", wiring.main))
