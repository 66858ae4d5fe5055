"""The ports that Ray listens on unless a spec sets others (spec raycluster §2.4)."""

from typing import Final

CLIENT: Final = 10001
GCS_SERVER: Final = 6379
DASHBOARD: Final = 8265
METRICS: Final = 8080
SERVE: Final = 8000
DASHBOARD_AGENT: Final = 52365

HEAD_DEFAULTS: Final = {
    "client": CLIENT,
    "gcs-server": GCS_SERVER,
    "dashboard": DASHBOARD,
    "metrics": METRICS,
    "serve": SERVE,
}
"""Port name to number of a head container that declares none."""
