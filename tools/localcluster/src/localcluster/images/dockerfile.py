"""Parses the part of the Dockerfile language that the builder without a container engine supports.

Anything else is an error that names its line, so that a file means the same to Docker and to this
builder.

    ARG NAME[=default]                       before the first FROM and within stages
    FROM debian:bookworm-slim[@DIGEST] | scratch | STAGE AS NAME
    RUN command | ["program", ...]           the shell form runs in /bin/sh -c
    COPY [--from=STAGE|binaries] SOURCE... TARGET      no wildcards, no other flags
    ENV, LABEL                               KEY=VALUE pairs
    WORKDIR, USER, ENTRYPOINT [...], CMD [...]

In the result, variables are expanded, a stage has its base's environment, and paths are absolute.
"""

import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from localcluster.errors import ClusterError

IMAGE_LABEL = "raybus.image"
"""Label whose value is the name of an image. A stage without this label is no image."""

BASE_IMAGES = ("debian:bookworm-slim", "scratch")
"""Base images that the builder can create itself.

For `NAME@DIGEST`, Docker pulls the image with this digest. The image that this builder creates has
a different digest.
"""

BINARIES = "binaries"
"""Name of the build context with files that the caller provides, for `COPY --from`."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEFAULT_SECONDS = 10.0
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*))")
_SECONDS = re.compile(r"#\s*seconds:\s*(\d+)")
_FROM = re.compile(r"(?P<base>\S+)\s+AS\s+(?P<name>[a-z][a-z0-9-]*)", re.IGNORECASE)


class ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How containers of an image start by default."""

    env: dict[str, str] = {}
    user: str = ""
    workdir: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class Run(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An instruction that runs a program inside the root file system."""

    line: int
    argv: tuple[str, ...]
    env: dict[str, str]
    user: str
    workdir: str


class Copy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An instruction that copies files.

    `origin` is a stage, `binaries`, or empty for the build context.
    """

    line: int
    origin: str
    sources: tuple[str, ...]
    target: str


class MakeFolder(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An instruction that creates the working directory, as Docker does for WORKDIR."""

    line: int
    path: str


Step = Run | Copy | MakeFolder


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed instructions from one FROM to the next.

    `seconds` is the estimated time of a build.
    """

    name: str
    line: int
    base: str
    seconds: float
    steps: tuple[Step, ...]
    config: ImageConfig

    @property
    def image(self) -> str | None:
        """The name of the image that the stage builds; None for a stage without an image."""
        return self.config.labels.get(IMAGE_LABEL)


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    instruction: str
    rest: str
    seconds: float


def is_base_image(base: str) -> bool:
    """Return whether a base image is one of `BASE_IMAGES`, with or without a digest."""
    return base.partition("@")[0] in BASE_IMAGES


def parse(text: str) -> tuple[Stage, ...]:
    """Return the stages of a Dockerfile in order.

    Raises `ClusterError` with the line of an error.
    """
    reader = _Reader()
    for line in _join_lines(text):
        reader.take(line)
    return reader.finish()


def _join_lines(text: str) -> Iterator[_Line]:
    """Yield instructions with continued lines joined and comments dropped.

    Each one has the number of its first line.
    """
    pending: list[str] = []
    first = 0
    seconds = _DEFAULT_SECONDS
    for number, raw in enumerate(text.splitlines(), start=1):
        if raw.lstrip().startswith("#") or not raw.strip():
            if match := _SECONDS.match(raw):
                seconds = float(match[1])
            continue
        first = first if pending else number
        pending.append(raw.rstrip().removesuffix("\\").strip())
        if raw.rstrip().endswith("\\"):
            continue
        instruction, _, rest = " ".join(pending).partition(" ")
        yield _Line(
            number=first, instruction=instruction.upper(), rest=rest.strip(), seconds=seconds
        )
        pending = []
        if instruction.upper() == "FROM":
            seconds = _DEFAULT_SECONDS
    if pending:
        raise _build_error(
            first, "the last instruction ends in a line continuation", "remove the backslash"
        )


class _Draft:
    """A stage whose instructions are being read."""

    def __init__(
        self, name: str, line: int, base: str, seconds: float, config: ImageConfig
    ) -> None:
        self.name = name
        self.line = line
        self.base = base
        self.seconds = seconds
        self.config = config
        self.args: dict[str, str] = {}
        self.steps: list[Step] = []

    def build_stage(self) -> Stage:
        return Stage(
            name=self.name,
            line=self.line,
            base=self.base,
            seconds=self.seconds,
            steps=tuple(self.steps),
            config=self.config,
        )


class _Reader:
    """Processes instructions one by one, and collects the parsed stages."""

    def __init__(self) -> None:
        self._global_args: dict[str, str] = {}
        self._stages: dict[str, Stage] = {}
        self._draft: _Draft | None = None

    def take(self, line: _Line) -> None:
        if line.instruction == "FROM":
            self._begin(line)
            return
        if line.instruction == "ARG":
            self._read_arg(line)
            return
        if self._draft is None:
            raise _build_error(
                line.number,
                f"{line.instruction} stands before the first FROM",
                "move it into a stage",
            )
        self._read_instruction(line, self._draft)

    def finish(self) -> tuple[Stage, ...]:
        self._close()
        if not self._stages:
            raise _build_error(
                1, "there is no FROM", "begin with FROM debian:bookworm-slim AS name"
            )
        return tuple(self._stages.values())

    def _close(self) -> None:
        if self._draft is not None:
            self._stages[self._draft.name] = self._draft.build_stage()

    def _begin(self, line: _Line) -> None:
        self._close()
        match = _FROM.fullmatch(_expand(line.rest, self._global_args, line.number))
        if match is None:
            raise _build_error(
                line.number,
                f"FROM {line.rest} is not supported",
                "write FROM base AS name (a-z, 0-9, -)",
            )
        base, name = match["base"], match["name"]
        if name in self._stages or name == BINARIES:
            raise _build_error(
                line.number, f"the stage name {name!r} is taken", "choose another one"
            )
        if base in self._stages:
            config = self._stages[base].config
            # A name belongs to one image, so a stage does not inherit it.
            labels = {key: value for key, value in config.labels.items() if key != IMAGE_LABEL}
            config = msgspec.structs.replace(config, labels=labels)
        elif is_base_image(base):
            config = ImageConfig(env={"PATH": _PATH})
        else:
            raise _build_error(
                line.number,
                f"unknown base {base!r}",
                f"use {', '.join(BASE_IMAGES)} or a stage above",
            )
        self._draft = _Draft(name, line.number, base, line.seconds, config)

    def _read_arg(self, line: _Line) -> None:
        name, equals, default = line.rest.partition("=")
        if self._draft is None:
            self._global_args[name] = _unquote(
                _expand(default, self._global_args, line.number), line.number
            )
            return
        scope = {**self._draft.config.env, **self._draft.args}
        value = (
            _unquote(_expand(default, scope, line.number), line.number)
            if equals
            else self._global_args.get(name)
        )
        if value is None:
            raise _build_error(line.number, f"ARG {name} has no value", f"write ARG {name}=default")
        self._draft.args[name] = value

    def _read_instruction(self, line: _Line, draft: _Draft) -> None:
        config = draft.config
        scope = {**draft.args, **config.env}
        text = line.rest if line.instruction == "RUN" else _expand(line.rest, scope, line.number)
        match line.instruction:
            case "RUN":
                draft.steps.append(_run(line, config, scope))
            case "COPY":
                draft.steps.append(self._copy(line.number, text, config.workdir))
            case "ENV":
                config = msgspec.structs.replace(
                    config, env={**config.env, **_parse_pairs(text, line.number)}
                )
            case "LABEL":
                config = msgspec.structs.replace(
                    config, labels={**config.labels, **_parse_pairs(text, line.number)}
                )
            case "WORKDIR":
                path = posixpath.join(config.workdir, text)
                config = msgspec.structs.replace(config, workdir=path)
                draft.steps.append(MakeFolder(line=line.number, path=path))
            case "USER":
                config = msgspec.structs.replace(config, user=text)
            case "ENTRYPOINT":
                config = msgspec.structs.replace(
                    config, entrypoint=_parse_exec_form(line), command=()
                )
            case "CMD":
                config = msgspec.structs.replace(config, command=_parse_exec_form(line))
            case _:
                raise _build_error(
                    line.number,
                    f"{line.instruction} is not supported",
                    "use ARG, FROM, RUN, COPY, ENV, LABEL, WORKDIR, USER, ENTRYPOINT or CMD",
                )
        draft.config = config

    def _copy(self, number: int, text: str, workdir: str) -> Copy:
        arguments = shlex.split(text)
        origin = ""
        while arguments and arguments[0].startswith("--"):
            flag, _, value = arguments.pop(0).partition("=")
            if flag != "--from":
                raise _build_error(number, f"COPY {flag} is not supported", "only --from=STAGE is")
            origin = value
        if origin and origin != BINARIES and origin not in self._stages:
            raise _build_error(
                number,
                f"COPY --from={origin}: no such stage above",
                f"name a stage or {BINARIES!r}",
            )
        if len(arguments) < 2:
            raise _build_error(
                number, "COPY needs a source and a target", "write COPY source target"
            )
        if any(set(argument) & set("*?[") for argument in arguments):
            raise _build_error(
                number, "COPY does not know wildcards here", "name the files or their folder"
            )
        *sources, target = arguments
        absolute = posixpath.join(workdir, target)
        return Copy(line=number, origin=origin, sources=tuple(sources), target=absolute)


def _run(line: _Line, config: ImageConfig, scope: Mapping[str, str]) -> Run:
    if line.rest.startswith("--") or "<<" in line.rest:
        raise _build_error(
            line.number, "RUN with flags or a here-document is not supported", "use a plain command"
        )
    argv = _parse_exec_form(line) if line.rest.startswith("[") else ("/bin/sh", "-c", line.rest)
    return Run(
        line=line.number, argv=argv, env=dict(scope), user=config.user, workdir=config.workdir
    )


def _parse_exec_form(line: _Line) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(line.rest, type=tuple[str, ...])
    except msgspec.MsgspecError:
        example = json.dumps(line.rest.split())
        raise _build_error(
            line.number,
            f"{line.instruction} is not a JSON list",
            f"write {line.instruction} {example}",
        ) from None


def _parse_pairs(text: str, number: int) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in _split(text, number):
        key, equals, value = pair.partition("=")
        if not equals:
            raise _build_error(number, f"{pair!r} is not KEY=VALUE", "write KEY=VALUE")
        pairs[key] = value
    return pairs


def _unquote(text: str, number: int) -> str:
    return " ".join(_split(text, number))


def _split(text: str, number: int) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _build_error(number, f"{text!r}: {error}", "close the quotation mark") from None


def _expand(text: str, scope: Mapping[str, str], number: int) -> str:
    """Expand `$NAME` and `${NAME}` by the values in `scope`.

    Raises `ClusterError` for a variable that is not set, with the line `number` in its message.
    """

    def find_value(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        if name not in scope:
            known: Iterable[str] = sorted(scope)
            raise _build_error(
                number,
                f"${name} is not set",
                f"declare it with ARG; set here: {', '.join(known) or 'none'}",
            )
        return scope[name]

    return _VARIABLE.sub(find_value, text)


def _build_error(number: int, what: str, remedy: str) -> ClusterError:
    return ClusterError(f"Dockerfile line {number}: {what}; {remedy}")
