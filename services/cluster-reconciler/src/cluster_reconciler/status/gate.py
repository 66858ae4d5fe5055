"""Whether a new status is worth a write (spec raycluster §14; acceptance case 114).

Times, observedGeneration and the desired resources do not count on their own, as in KubeRay: they are written along with
what does.
"""

import msgspec

from common.api.ray_cluster import RayClusterStatus

_IGNORED = {"last_update_time", "observed_generation", "state_transition_times"} | {
    f"desired_{resource}" for resource in ("cpu", "memory", "gpu", "tpu")
}


def has_changed(old: RayClusterStatus, new: RayClusterStatus) -> bool:
    """Tell whether two statuses differ in anything that counts."""
    unset = {name: getattr(RayClusterStatus(), name) for name in _IGNORED}
    return msgspec.structs.replace(old, **unset) != msgspec.structs.replace(new, **unset)
