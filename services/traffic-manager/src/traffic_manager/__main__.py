"""`python -m traffic_manager`: runs the service until it is stopped."""

from common.runtime import process
from traffic_manager import wiring

if __name__ == "__main__":
    process.leave(process.run("traffic-manager", wiring.main))
