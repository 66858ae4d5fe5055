"""`python -m cluster_reconciler`: run the service until it is told to stop."""

import sys

from cluster_reconciler import wiring
from common.runtime import process

if __name__ == "__main__":
    sys.exit(process.run("cluster-reconciler", wiring.main))
