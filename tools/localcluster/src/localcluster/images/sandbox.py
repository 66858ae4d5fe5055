"""Runs a build step or debootstrap in its own mount and PID namespaces.

The program gets the network settings of this machine: mirrors, proxies, package indexes and
certificates. A RUN gets them only by mounts and environment variables, so no image depends on the
machine that built it. All processes in the namespaces end when this process dies.
"""

import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from localcluster.errors import ClusterError
from localcluster.images.archive import TIMESTAMP
from localcluster.images.inside import MOUNT, HostFiles, StepJob
from localcluster.progress import ProgressStep

_ISOLATION = (
    *("setpriv", "--pdeathsig", "KILL"),
    *(
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--",
    ),
)
_TAIL = 8
_SHOWN = 60


def perform(job: StepJob, what: str, shown: ProgressStep, log: Path) -> None:
    """Perform one step of a stage. `what` names it in errors. Raises `ClusterError` if it fails."""
    command = [sys.executable, "-m", "localcluster.images.inside"]
    run(command, what=what, shown=shown, log=log, given=msgspec.json.encode(job))


def run(
    command: Sequence[str],
    *,
    what: str,
    shown: ProgressStep,
    log: Path,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program in its own mount and PID namespaces; append its output to `log`.

    `shown` shows the latest output line. `given` is the program's standard input. Raises
    `ClusterError` with the last output lines if the program fails.
    """
    last: deque[str] = deque(maxlen=_TAIL)
    with (
        log.open("a") as keep,
        subprocess.Popen(
            [*_ISOLATION, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        ) as process,
    ):
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        try:
            process.stdin.write(given)
            process.stdin.close()
            for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip()
                keep.write(f"{line}\n")
                if line:
                    last.append(line)
                    shown.note(line[:_SHOWN])
        except BaseException:
            # Pid 1 of a namespace ignores SIGINT, so kill it; all processes in the namespace end
            # with it.
            process.kill()
            raise
    if process.returncode:
        raise ClusterError(
            f"{what} failed (exit code {process.returncode}): {' | '.join(last)}; all of it: {log}"
        )


def has_overlay(folder: Path) -> bool:
    """Return whether overlayfs works on the file system of `folder`.

    In most containers it does not.
    """
    for name in ("lower", "upper", "work", "root"):
        (folder / name).mkdir(parents=True)
    mount = [
        "mount",
        "-t",
        "overlay",
        "-o",
        "lowerdir=lower,upperdir=upper,workdir=work",
        "overlay",
        f"{folder}/root",
    ]
    return (
        subprocess.run(
            [*_ISOLATION, *mount], cwd=folder, capture_output=True, check=False
        ).returncode
        == 0
    )


SUITE = "bookworm"
_DEFAULT_MIRROR = "http://deb.debian.org/debian"
_MIRROR_VARIABLE = "RAYBUS_DEBIAN_MIRROR"

_PASSED = re.compile(
    r"(?i:(http|https|ftp|all|no)_proxy)"
    r"|PIP_(INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|TRUSTED_HOST|DEFAULT_TIMEOUT|TIMEOUT|RETRIES|PROXY|PRE|PREFER_BINARY|ONLY_BINARY)"
    r"|UV_(INDEX|INDEX_URL|DEFAULT_INDEX|EXTRA_INDEX_URL|NO_INDEX|HTTP_TIMEOUT|INSECURE_HOST)"
)
_CERTIFICATES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_PIP_FILES = (".config/pip/pip.conf", ".pip/pip.conf")
_URIS = re.compile(r"^URIs:\s*(?P<uri>\S+/debian)/?\s*$", re.MULTILINE)
_DEB = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?(?P<uri>\S+/debian)/?\s+\S+", re.MULTILINE)
_NETWORK_OPTION = re.compile(
    r"^Acquire::(?:http|https|ftp|Retries)\b(?!.*(?:SslCert|SslKey|CaInfo|CaPath))"
)


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this machine that a build needs: environment, Debian mirror and files."""

    environment: dict[str, str]
    mirror: str
    files: HostFiles


def collect(environment: Mapping[str, str], folder: Path) -> Host:
    """Copy the files that a RUN may need into the new folder `folder`, and return the settings."""
    folder.mkdir(mode=0o755)
    chosen = choose_mirror(environment)
    mirror = chosen or find_mirror(_read_apt_sources())
    (folder / "sources.list").write_text(format_sources(mirror))
    # The files of a snapshot are older than their validity date.
    expired = 'Acquire::Check-Valid-Until "false";\n' if chosen else ""
    (folder / "apt.conf").write_text(_format_apt_configuration() + expired)
    resolv_conf = folder / "resolv.conf"
    _copy_first((Path("/etc/resolv.conf"),), resolv_conf)
    resolv_conf.touch()
    bundle = _copy_first(_list_bundles(environment), folder / "ca.crt")
    pip = _copy_first(
        (*(Path.home() / name for name in _PIP_FILES), Path("/etc/pip.conf")), folder / "pip.conf"
    )
    links = find_links(environment.get("PIP_FIND_LINKS", ""))
    passed = select_environment(environment, has_bundle=bundle)
    if pip:
        passed["PIP_CONFIG_FILE"] = f"{MOUNT}/pip.conf"
    local = tuple(link for link in links if link.startswith("/"))
    shown = [f"/run/wheels-{local.index(link)}" if link in local else link for link in links]
    if shown:
        passed["PIP_FIND_LINKS"] = " ".join(shown)
    files = HostFiles(resolv_conf=str(resolv_conf), folder=str(folder), find_links=local)
    return Host(environment=passed, mirror=mirror, files=files)


def select_environment(environment: Mapping[str, str], *, has_bundle: bool) -> dict[str, str]:
    """Return the environment variables that a RUN gets in addition to those of the image.

    `has_bundle` says whether a file with CA certificates exists for it.
    """
    passed = {key: value for key, value in environment.items() if _PASSED.fullmatch(key)}
    passed |= {
        "DEBIAN_FRONTEND": "noninteractive",
        "APT_CONFIG": f"{MOUNT}/apt.conf",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "SOURCE_DATE_EPOCH": str(TIMESTAMP),
        "PYTHONHASHSEED": "0",
    }
    if has_bundle:
        passed |= dict.fromkeys(_CERTIFICATES, f"{MOUNT}/ca.crt")
    return passed


def find_links(value: str) -> tuple[str, ...]:
    """Return the usable entries of the variable PIP_FIND_LINKS: URLs and existing folders."""
    return tuple(
        item
        for item in value.split()
        if "://" in item or (item.startswith("/") and Path(item).is_dir())
    )


def choose_mirror(environment: Mapping[str, str]) -> str:
    """Return the Debian mirror in RAYBUS_DEBIAN_MIRROR; empty if it is not set.

    The mirror may be a dated snapshot of snapshot.debian.org.
    """
    return environment.get(_MIRROR_VARIABLE, "").rstrip("/")


def find_mirror(sources: str) -> str:
    """Return the Debian mirror in the apt sources of this machine, or Debian's own mirror."""
    match = _URIS.search(sources) or _DEB.search(sources)
    return match["uri"] if match else _DEFAULT_MIRROR


def format_sources(mirror: str) -> str:
    """Return the text of the apt sources for a build.

    The security updates are beside the main archive on every full mirror.
    """
    # The last `/debian` is the archive's name: http://HOST/archive/debian/20261101T000000Z is a
    # snapshot.
    before, _, after = mirror.rpartition("/debian")
    security = f"{before}/debian-security{after}"
    lines = [
        f"deb {mirror} {SUITE} main",
        f"deb {mirror} {SUITE}-updates main",
        f"deb {security} {SUITE}-security main",
    ]
    return "\n".join(lines) + "\n"


def _read_apt_sources() -> str:
    folder = Path("/etc/apt")
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    return "\n".join(path.read_text(errors="replace") for path in files if path.is_file())


def _format_apt_configuration() -> str:
    """Return the apt options for a build: its own sources, this machine's proxies, retries."""
    lines = [
        f'Dir::Etc::sourcelist "{MOUNT}/sources.list";',
        'Dir::Etc::sourceparts "-";',
        'Acquire::Retries "5";',
        'Acquire::Languages "none";',
        f'Acquire::https::CaInfo "{MOUNT}/ca.crt";',
        'Dpkg::Use-Pty "0";',
    ]
    if shutil.which("apt-config"):
        dump = subprocess.run(
            ["apt-config", "dump"], capture_output=True, text=True, check=False
        ).stdout
        lines += [line for line in dump.splitlines() if _NETWORK_OPTION.match(line)]
    return "\n".join(lines) + "\n"


def _list_bundles(environment: Mapping[str, str]) -> tuple[Path, ...]:
    named = (environment.get(name) for name in _CERTIFICATES)
    return tuple(Path(path) for path in (*named, *_BUNDLES) if path)


def _copy_first(candidates: tuple[Path, ...], target: Path) -> bool:
    for candidate in candidates:
        if candidate.is_file():
            shutil.copyfile(candidate, target)
            target.chmod(0o644)
            return True
    return False
