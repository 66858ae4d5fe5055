"""Entry point of `python -m cluster_reconciler`; runs the service until it is stopped."""

from cluster_reconciler import wiring
from common.runtime import process

if __name__ == "__main__":
    process.exit_process(process.run("cluster-reconciler", wiring.main))
