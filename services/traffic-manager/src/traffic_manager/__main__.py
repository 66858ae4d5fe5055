"""`python -m traffic_manager`: run the service until it is told to stop."""

import sys

from common.runtime import process
from traffic_manager import wiring

if __name__ == "__main__":
    sys.exit(process.run("traffic-manager", wiring.main))
