"""`python -m watcher`: publishes what changes in Kubernetes to the bus."""

import sys

from common.runtime import process
from watcher import settings, wiring

if __name__ == "__main__":
    sys.exit(process.run(settings.SERVICE, wiring.serve))
