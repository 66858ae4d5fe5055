"""Provides images as archives, from the cache or newly built.

Missing images are built with Docker's buildx if it is available, else without a container engine.
The keys in the cache depend on the inputs (Dockerfile, copied files), so nothing that exists is
built again.
"""

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from localcluster import progress, settings
from localcluster.errors import ClusterError
from localcluster.images import archive, debian, dockerfile, plan, sandbox
from localcluster.images.dockerfile import BINARIES, Copy, Run, Stage, Step, is_base_image
from localcluster.images.inside import CopyFiles, StepJob
from localcluster.images.plan import BuildContext, SourceChangedError
from localcluster.images.store import DOCKER, OWN_BUILDER, ArchiveRecord, BuildOrigin, ImageStore
from localcluster.progress import Progress

_SHOWN = 60
_TAIL = 6


def is_docker_available() -> bool:
    """Return whether a Docker engine with buildx answers within 10 s."""
    if not shutil.which("docker"):
        return False
    questions = (
        ["docker", "buildx", "version"],
        ["docker", "info", "--format", "{{.ServerVersion}}"],
    )
    try:
        return all(
            subprocess.run(ask, capture_output=True, check=False, timeout=10).returncode == 0
            for ask in questions
        )
    except subprocess.TimeoutExpired:
        return False


def build(
    checkout: Path,
    target: str,
    image: str,
    written: Path,
    *,
    files: Mapping[str, Path],
    shown: progress.ProgressStep,
) -> None:
    """Build one target of the Dockerfile with buildx, and write its archive to `written`.

    `files` are the binaries for `COPY --from=binaries`. Raises `ClusterError` with the last output
    lines on failure.
    """
    with tempfile.TemporaryDirectory(prefix="raybus-binaries-") as folder:
        for name, path in files.items():
            shutil.copy2(path, Path(folder) / name)
        command = [
            "docker",
            "buildx",
            "build",
            "--progress=plain",
            "--target",
            target,
            "--tag",
            image,
        ]
        command += [
            "--file",
            str(checkout / "deploy/images/Dockerfile"),
            "--build-context",
            f"{BINARIES}={folder}",
        ]
        command += ["--output", f"type=docker,dest={written}", str(checkout)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            lines: list[str] = []
            for line in process.stdout or ():
                lines = [*lines[1 - _TAIL :], line.rstrip()]
                shown.note(line.strip()[:_SHOWN])
        if process.returncode:
            raise ClusterError(f"docker buildx build --target {target} failed: {' | '.join(lines)}")


DOCKERFILE = Path("deploy/images/Dockerfile")
_FREE_BYTES = 6_000_000_000
"""Free bytes needed while Ray's image is built: the image, its layer and its files exist at the
same time.
"""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ATTEMPTS = 3
"""Number of attempts to build.

If sources change during a build, changed files are read again, and finished stages are kept.
"""
_ARCHIVE_SHARE = 0.1
"""Estimated time to write an archive, as a fraction of the build time of its last stage.

The estimate is at least one second.
"""


class ImageArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An image as a file for `ctr images import` or `docker load`. `ref` is its name and tag."""

    target: str
    ref: str
    path: Path
    digest: str
    """The image's id, which is the digest of its configuration."""
    manifest: str
    """The image's digest in a registry, which is the digest of its manifest.

    Empty if the archive lacks it.
    """
    origin: BuildOrigin
    built: bool
    """Whether this run built the archive."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What a build needs: the parsed Dockerfile of a checkout, and the cache keys of its stages.

    `targets` are the stages of the images to build.
    """

    checkout: Path
    stages: tuple[Stage, ...]
    targets: tuple[Stage, ...]
    keys: dict[str, str]
    files: Mapping[str, Path]
    """Binaries by name, for `COPY --from=binaries`."""
    snapshot: str
    """The Debian mirror that the user set; empty for the default mirror."""

    def compute_image_key(self, target: Stage) -> str:
        """Return the cache key of a target's archive."""
        return plan.compute_image_key(target, self.keys[target.name])


def ensure(
    targets: Sequence[str],
    *,
    progress: Progress,
    files: Mapping[str, Path] | None = None,
    checkout: Path | None = None,
    reproducible: bool = False,
) -> dict[str, ImageArchive]:
    """Return the archives of `targets` by name (all images if empty). Missing ones are built.

    `files` are binaries by name, for `COPY --from=binaries`. With `reproducible`, archives that
    Docker built are not used, because their digests depend on Docker's version. Blocks for minutes
    with an empty cache, so call it from a thread. Raises `ClusterError` if a build fails.
    """
    given = settings.LocalSettings.from_environment()
    store = ImageStore(given.cache_root / "images")
    for attempt in range(1, _ATTEMPTS + 1):
        context, recipe = _read(targets, checkout or given.checkout, files or {})
        try:
            return _ensure(context, recipe, store, progress, reproducible=reproducible)
        except SourceChangedError as changed:
            if attempt == _ATTEMPTS:
                raise
            progress.report(f"{changed}: retrying")
    raise AssertionError("the last attempt returns or raises")


def _ensure(
    context: BuildContext,
    recipe: Recipe,
    store: ImageStore,
    progress: Progress,
    *,
    reproducible: bool,
) -> dict[str, ImageArchive]:
    missing = _list_missing(recipe, store, reproducible=reproducible)
    if missing:
        with store.hold_lock(progress):
            missing = _list_missing(recipe, store, reproducible=reproducible)
            if missing and not reproducible and is_docker_available():
                _build_with_engine(missing, recipe, store, progress)
            elif missing:
                _Builder(recipe, context, store, progress).build(missing)
    built = {stage.name for stage in missing}
    return {
        target.name: _find_image(target, recipe, store, built=target.name in built)
        for target in recipe.targets
    }


def list_images(checkout: Path | None = None) -> dict[str, str]:
    """Return the name of each image by its target in the Dockerfile."""
    stages = _read_stages(checkout or settings.LocalSettings.from_environment().checkout)
    return {stage.name: stage.image for stage in stages if stage.image}


def _read_stages(checkout: Path) -> tuple[Stage, ...]:
    path = checkout / DOCKERFILE
    if not path.is_file():
        raise ClusterError(f"{path} does not exist; run this inside a raybus checkout")
    return dockerfile.parse(path.read_text())


def _read(
    targets: Sequence[str], checkout: Path, files: Mapping[str, Path]
) -> tuple[BuildContext, Recipe]:
    stages = _read_stages(checkout)
    ignore = (checkout / DOCKERFILE).with_name("Dockerfile.dockerignore")
    context = BuildContext(checkout, files, ignore.read_text() if ignore.is_file() else "")
    chosen = plan.choose(stages, targets)
    snapshot = sandbox.choose_mirror(settings.copy_environment())
    keys = plan.compute_keys(plan.list_needed(stages, chosen), context.digest, snapshot)
    return context, Recipe(
        checkout=checkout, stages=stages, targets=chosen, keys=keys, files=files, snapshot=snapshot
    )


def _list_missing(recipe: Recipe, store: ImageStore, *, reproducible: bool) -> list[Stage]:
    def is_there(stage: Stage) -> bool:
        record = store.find_archive(stage.name, recipe.compute_image_key(stage))
        return record is not None and not (reproducible and record.origin.builder != OWN_BUILDER)

    return [stage for stage in recipe.targets if not is_there(stage)]


def _find_image(target: Stage, recipe: Recipe, store: ImageStore, *, built: bool) -> ImageArchive:
    key = recipe.compute_image_key(target)
    record = store.find_archive(target.name, key)
    if record is None:
        raise ClusterError(
            f"image {target.name} vanished from {store.folder} while it was used; build it again"
        )
    path = store.archive_path(target.name, key)
    return ImageArchive(
        target=target.name,
        ref=record.image,
        path=path,
        digest=record.digest,
        manifest=record.manifest,
        origin=record.origin,
        built=built,
    )


def _build_with_engine(
    missing: Sequence[Stage], recipe: Recipe, store: ImageStore, progress: Progress
) -> None:
    for stage in missing:
        image = stage.image or ""
        written = store.work / f"{stage.name}.tar"
        with progress.step(
            f"image {stage.name} with docker buildx", estimate=stage.seconds
        ) as shown:
            build(recipe.checkout, stage.name, image, written, files=recipe.files, shown=shown)
        pinned = [
            base.partition("@")
            for base in plan.list_base_images(plan.list_needed(recipe.stages, [stage]))
        ]
        bases = {name: digest for name, _, digest in pinned if digest}
        record = ArchiveRecord(
            image=image,
            digest=archive.read_id(written),
            manifest=archive.read_manifest_digest(written),
            origin=BuildOrigin(builder=DOCKER, bases=bases),
        )
        store.publish_archive(stage.name, recipe.compute_image_key(stage), written, record)


class _Builder:
    """Builds stages as overlay layers without a container engine."""

    def __init__(
        self, recipe: Recipe, context: BuildContext, store: ImageStore, progress: Progress
    ) -> None:
        self._recipe = recipe
        self._context = context
        self._store = store
        self._progress = progress
        self._by_name = {stage.name: stage for stage in recipe.stages}
        self._environment = settings.copy_environment()

    def build(self, missing: Sequence[Stage]) -> None:
        """Build the missing layers of stages.

        Write each image's archive as soon as its layers exist.
        """
        self._check_machine()
        host_files = sandbox.collect(self._environment, self._store.work / "host")
        present = {name for name, key in self._recipe.keys.items() if self._store.has_layer(key)}
        queue = plan.to_build(missing, self._by_name, present)
        pending = {stage.name: stage for stage in missing}
        for position, name in enumerate(queue):
            left = sum(self._estimate_seconds(other) for other in queue[position:])
            position_text = f"{position + 1} of {len(queue)}, all images in about {left:.0f} s"
            if is_base_image(name):
                self._build_root(name, host_files)
            else:
                self._build_stage(self._by_name[name], host_files, position_text)
            if name in pending:
                self._archive(pending.pop(name))
        for stage in pending.values():
            self._archive(stage)

    def _check_machine(self) -> None:
        if not settings.is_root():
            raise ClusterError(
                "building images without Docker needs root (chroot, mounts); run as root, or "
                "start Docker"
            )
        free = shutil.disk_usage(self._store.work).free
        if free < _FREE_BYTES:
            raise ClusterError(
                f"{self._store.folder} has {free / 1e9:.1f} GB free, building images needs "
                f"{_FREE_BYTES / 1e9:.0f} GB; "
                "free some, or set XDG_CACHE_HOME to another disk"
            )
        if not sandbox.has_overlay(self._store.work / "probe"):
            raise ClusterError(
                f"overlayfs does not work on {self._store.folder}; set XDG_CACHE_HOME to a local "
                "disk (ext4, xfs, tmpfs)"
            )
        debian.install(debian.TOOLS, self._progress)

    def _estimate_seconds(self, name: str) -> float:
        return debian.SECONDS if is_base_image(name) else self._by_name[name].seconds

    def _build_root(self, name: str, host_files: sandbox.Host) -> None:
        tree = self._store.work / "root"
        if name == "scratch":
            tree.mkdir(mode=0o755)
        else:
            log = self._store.logs / "debootstrap.log"
            log.unlink(missing_ok=True)
            debian.create_base(tree, host_files, self._progress, log, self._environment)
        self._store.publish_layer(self._recipe.keys[name], tree)

    def _build_stage(self, stage: Stage, host_files: sandbox.Host, position: str) -> None:
        folder = self._store.work / f"stage-{stage.name}"
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True, mode=0o755)
        log = self._store.logs / f"{stage.name}.log"
        log.unlink(missing_ok=True)
        with self._progress.step(
            f"image stage {stage.name} ({position})", estimate=stage.seconds
        ) as shown:
            for number, step in enumerate(stage.steps):
                what = f"Dockerfile line {step.line} (stage {stage.name})"
                sandbox.perform(
                    self._build_job(stage, step, folder, number, host_files), what, shown, log
                )
        (folder / "upper").chmod(0o755)
        self._store.publish_layer(self._recipe.keys[stage.name], folder / "upper")

    def _build_job(
        self, stage: Stage, step: Step, folder: Path, number: int, host_files: sandbox.Host
    ) -> StepJob:
        match step:
            case Run():
                # Variables of the host must not override the image's variables, except for package
                # sources.
                task = msgspec.structs.replace(step, env={**host_files.environment, **step.env})
            case Copy():
                task = self._copy(step, folder / f"copy-{number}")
            case _:
                task = step
        return StepJob(
            root=str(folder / "root"),
            store=str(self._store.folder),
            lowers=self._list_lower_layers(stage.base),
            upper=str((folder / "upper").relative_to(self._store.folder)),
            work=str((folder / "work").relative_to(self._store.folder)),
            host=host_files.files,
            step=task,
        )

    def _copy(self, step: Copy, folder: Path) -> CopyFiles:
        if step.origin and step.origin != BINARIES:
            return CopyFiles(
                line=step.line,
                sources=step.sources,
                target=step.target,
                layers=self._list_lower_layers(step.origin),
            )
        folder.mkdir(mode=0o755)
        self._context.copy_files(step, folder)
        return CopyFiles(
            line=step.line, sources=step.sources, target=step.target, folder=str(folder)
        )

    def _list_lower_layers(self, name: str) -> tuple[str, ...]:
        """Return the layers of a stage or base image, top first, as paths relative to the store."""
        names = (
            (name,) if is_base_image(name) else plan.list_chain(self._by_name[name], self._by_name)
        )
        return tuple(self._store.layer_name(self._recipe.keys[name]) for name in reversed(names))

    def _archive(self, stage: Stage) -> None:
        names = plan.list_chain(stage, self._by_name)
        image = stage.image or ""
        written = self._store.work / f"{stage.name}.tar"
        with self._progress.step(
            f"image {stage.name}: writing {image}",
            estimate=max(1.0, stage.seconds * _ARCHIVE_SHARE),
        ):
            # The base image `scratch` is empty, so it has no layer.
            layers = [
                self._store.write_layer_tar(self._recipe.keys[name])
                for name in names
                if name != "scratch"
            ]
            machine = platform.machine()
            architecture = _ARCHITECTURES.get(machine, machine)
            digests = archive.write(written, image, stage.config, layers, architecture=architecture)
            record = ArchiveRecord(
                image=image,
                digest=digests.config,
                manifest=digests.manifest,
                origin=self._describe_origin(stage),
            )
            self._store.publish_archive(
                stage.name, self._recipe.compute_image_key(stage), written, record
            )
            if not plan.is_shared(stage.name, self._recipe.stages):
                self._store.drop_layer(self._recipe.keys[stage.name])

    def _describe_origin(self, stage: Stage) -> BuildOrigin:
        bases = [
            base
            for base in plan.list_base_images(plan.list_needed(self._recipe.stages, [stage]))
            if base != "scratch"
        ]
        digests = {
            base.partition("@")[0]: self._store.write_layer_tar(self._recipe.keys[base]).digest
            for base in bases
        }
        return BuildOrigin(builder=OWN_BUILDER, bases=digests, snapshot=self._recipe.snapshot)
