"""Entry point of `python -m traffic_manager`."""

from common.runtime import process
from traffic_manager import wiring

if __name__ == "__main__":
    process.exit_process(process.run("traffic-manager", wiring.main))
