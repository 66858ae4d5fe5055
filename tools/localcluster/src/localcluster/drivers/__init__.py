"""The drivers of local clusters."""

from localcluster import driver
from localcluster.driver import Driver, DriverName
from localcluster.drivers.built import Built
from localcluster.drivers.docker import KindDriver
from localcluster.drivers.loopback import Existing, Loopback
from localcluster.errors import MisuseError


def by_name(name: str) -> Driver:
    """Return the driver with this name. Raises `MisuseError` if there is none."""
    match name:
        case DriverName.BUILT:
            return Built()
        case DriverName.KIND:
            return KindDriver()
        case DriverName.KUBECONFIG:
            return Existing()
        case driver.CONTROL_PLANE_ONLY:
            return Loopback()
        case _:
            raise MisuseError(f"unknown driver {name!r}: choose one of {', '.join(DriverName)}")
