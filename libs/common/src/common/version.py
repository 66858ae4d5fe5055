"""The version of raybus: one number for all packages, and its form where KubeRay writes its own version.

A constant, not package metadata: it stands in pods and clusters, and must not depend on how the program was installed.
"""

from typing import Final

VERSION: Final = "0.1.0"
OPERATOR_VERSION: Final = f"raybus-v{VERSION}"
"""Differs from every version of KubeRay, so that a take-over does not recreate clusters."""
