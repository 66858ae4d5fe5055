"""`python -m service_reconciler`: run the service until it is told to stop."""

import sys

from common.runtime import process
from service_reconciler import wiring

if __name__ == "__main__":
    sys.exit(process.run("service-reconciler", wiring.main))
