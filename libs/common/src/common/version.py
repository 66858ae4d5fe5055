"""The version of raybus, one number for all packages.

It is a constant instead of package metadata, since it is written to pods and clusters and must not
depend on how the program was installed.
"""

from typing import Final

VERSION: Final = "0.1.0"
OPERATOR_VERSION: Final = f"raybus-v{VERSION}"
"""The version that raybus writes where KubeRay writes its own.

It differs from all of KubeRay's versions. A cluster whose spec hash a different version recorded is
not recreated unless its spec differs as well."""
