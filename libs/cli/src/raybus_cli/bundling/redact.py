"""Removes confidential values from objects and logs: environments, Secrets, passwords, tokens.

Names and structure stay, because they are needed to find a bug. Values that a user may fill with
anything (annotations, environments, headers, URLs) are removed unless a list here permits them.
Other values are judged by their name (`password`) and by their form (`ghp_…`).

Texts may come from a hostile tenant, so the time must be linear in their length: patterns are
compiled by RE2, and each search continues after the value that was found last.
"""

from typing import Any, Final, cast

import msgspec
import re2
import yaml

from common import labels
from common.api.opaque import Json
from common.ray import goal_revision, revision
from common.upgrade import traffic_record

REMOVED: Final = "(removed)"
_REMOVED_BYTES: Final = REMOVED.encode()

ANNOTATIONS: Final = frozenset(
    {
        *(
            value
            for value in vars(labels).values()
            if isinstance(value, str) and value.startswith(("ray.io/", "raybus.io/"))
        ),
        goal_revision.REPLACES,
        revision.OUTCOME,
        traffic_record.ANNOTATION,
        labels.INGRESS_CLASS,
        "deployment.kubernetes.io/revision",
        "kubectl.kubernetes.io/restartedAt",
    }
)
"""Annotations whose values are kept, because they control operators and contain no secrets."""
HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "content-length", "content-type", "host", "user-agent"}
)
"""Headers whose values are kept, in lower case."""
HOSTS: Final = (
    ".svc",
    ".svc.cluster.local",
    "docs.ray.io",
    "github.com",
    "huggingface.co",
    "localhost",
    "pypi.org",
)
"""Host names or suffixes whose URL paths are kept. Paths of other hosts may contain a token."""

_FLAGS: Final = rb"(?i)"
_SECRET_PATTERN: Final = (
    rb"passw|passphrase|passwd|token|secret|credential|authorization|authentication|cookie|jwt"
    rb"|bearer|connection[_-]?string|[a-z0-9][_-]?keys?|runtime[_-]env[_-]json|env[_-]?vars"
    rb"|\bpwd|\bpass|\bauth|\bdsn|signature|\bpat\b"
)
_SECRET_WORD: Final = re2.compile(_FLAGS + b"(?:" + _SECRET_PATTERN + b")")
_HARMLESS_NAME: Final = re2.compile(
    rb"(?i)[\w.-]*tokenizer[\w.-]*|[\w.-]*(?:max|min|num|total|prompt|completion|generated|draft)"
    rb"[\w.-]*tokens?(?:_per_\w+)?|enable[\w]*|[\w.-]*(?:partition|sort|primary|group|foreign)[_-]?keys?"
    rb"|monkey|turkey|passed|passing|tokens_per_\w+"
)
"""Matches names that contain a word such as `token` but name no secret, such as `max_tokens`."""
_REFERENCES: Final = frozenset(
    {
        "automountServiceAccountToken",
        "configMapKeyRef",
        "fieldRef",
        "imagePullSecrets",
        "resourceFieldRef",
        "secretKeyRef",
        "secretName",
        "secretRef",
        "serviceAccountToken",
        "topologyKey",
        "secrets",
        "labelSelector",
        "matchLabelKeys",
    }
)
"""Fields that hold no secret, because they name an object or are switches."""
_DATA: Final = frozenset({"data", "stringData", "binaryData"})
_ENVIRONMENTS: Final = frozenset({"env", "env_vars", "environment", "containerEnv"})

_NAME_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_NAME: Final = re2.compile(rb"[\w.-]*")
_SEPARATOR: Final = re2.compile(rb"""(\\*["'])?\s*(=>|:=|[:=,])\s*""")
_BLANKS: Final = re2.compile(rb"[ \t]+")
_QUOTE: Final = re2.compile(rb"""\\*["']""")
_STRUCTURE: Final = re2.compile(rb"""\\*["']|[\[\]{}]""")
_UNQUOTED: Final = re2.compile(rb"""[^\s"']*(?:["'][^\s"',\]})][^\s"']*)*""")
_FORMS: Final = re2.compile(
    rb"""(?i)\bbearer[ \t]+[^\s"',]+|\beyJ[\w-]{8,}(?:\.[\w-]*)*"""
    rb"|\b(?:hf_|sk-|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|xapp-|npm_|pypi-|dckr_pat_|nvapi-)"
    rb"[\w.+=-]{8,}"
    rb"|\b(?:AKIA|ASIA|AIza)[\w-]{12,}|\bS[UAONCX][A-Z2-7]{56}\b"
)
"""Matches tokens that are recognised by their form."""
_VARIABLE: Final = re2.compile(rb"""((?:^|\s|["'])(?:-e|--env)(?:[ \t]+|=)[A-Za-z_]\w*=)[^\s"']+""")
_HEADER: Final = re2.compile(
    rb"""(?i)((?:^|\s)(?:-H|--header)(?:[ \t]+|=)["']?[\w-]+:)[^"'\n]*|((?:^|\s)(?:-u|--user)[ \t=]+["']?[^\s:"']*:)[^\s"']+"""
)
_USER_INFO: Final = re2.compile(rb"""(\b[\w.-]+:)([^\s:@/"',]+)@([\w.(-]+)""")
_URL: Final = re2.compile(rb"""(\w[\w+.-]*)://([^\s"'<>`\\]*)""")
_MAX_MARKS: Final = 10_000
"""Maximum number of brackets and quotes in one value. If a value has more, the rest of the line is
removed.
"""
_MIN_LENGTH: Final = 5
"""Minimum length of a line with a secret: a name, a separator and a value, such as `key=x`."""
_RANDOM: Final = re2.compile(rb"[A-Za-z0-9_]{16,}")
_PEM_BEGIN, _PEM_END = "-----BEGIN ", "-----END "


def redact_object(body: Json) -> Json:
    """Return a Kubernetes object without confidential values and without `managedFields`."""
    kept = cast("Json", redact_value(body))
    if body.get("kind") in {"Secret", "ConfigMap"}:
        kept |= {key: dict.fromkeys(body[key] or {}, REMOVED) for key in _DATA if key in body}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        cast("Json", metadata).pop("managedFields", None)
    return kept


def redact_text(lines: str) -> str:
    """Return lines of a log, command or message without confidential values.

    A value may span lines, such as a private key or a YAML block below its name. Such lines are
    removed up to the end of the block.
    """
    kept: list[str] = []
    block: _Block | None = None
    for line in lines.splitlines(keepends=True):
        if block is not None and block.contains(line):
            continue
        block = _Block.find_start(line)
        kept.append(_redact_line(line))
        if block is not None:
            kept.append(f"{REMOVED}\n")
    return "".join(kept)


def redact_value(content: object, key: str = "") -> object:
    """Return a JSON value without confidential parts; `key` is the name of its field."""
    if isinstance(content, dict):
        return _redact_mapping(cast("dict[str, Any]", content), key)
    if isinstance(content, list):
        return _redact_items(cast("list[object]", content), key)
    if isinstance(content, str):
        return (
            _redact_serve_config(content)
            if key in {"serveConfigV2", "serve_config"}
            else redact_text(content)
        )
    return content


class _Block(msgspec.Struct):
    """A secret value that continues on the lines after its name or first line."""

    indent: int
    is_pem: bool = False
    is_over: bool = False

    @classmethod
    def find_start(cls, line: str) -> "_Block | None":
        """Return the block that starts after a line; None if the line starts no block."""
        if _PEM_BEGIN in line and "PRIVATE KEY" in line and _PEM_END not in line:
            return cls(0, is_pem=True)
        bare = line.rstrip().rstrip("|>[{-+ ").rstrip()
        name = bare[:-1].strip(" \"'-") if bare.endswith(":") else ""
        if name and len(name) <= 200 and _is_secret(name.rpartition(" ")[2].strip("\"'")):
            return cls(_count_indent(line))
        return None

    def contains(self, line: str) -> bool:
        """Return whether the block continues in `line`, which is the next line of the text."""
        if self.is_over:
            return False
        if self.is_pem:
            self.is_over = _PEM_END in line
            return True
        content = line.strip()
        deeper = _count_indent(line) > self.indent
        is_item = _count_indent(line) == self.indent and content.startswith(("-", "]", "}"))
        return not content or deeper or is_item


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _redact_line(line: str) -> str:
    if len(line) < _MIN_LENGTH:
        return line
    encoded = line.encode(errors="surrogatepass")
    if _PEM_BEGIN.encode() in encoded and b"PRIVATE KEY" in encoded:
        encoded = encoded[: encoded.index(_PEM_BEGIN.encode())] + _REMOVED_BYTES + b"\n"
    encoded = _redact_pairs(encoded)
    if b"://" in encoded:
        encoded = _URL.sub(_redact_url, encoded)
    if b"@" in encoded:
        encoded = _USER_INFO.sub(_redact_user_info, encoded)
    if b"=" in encoded:
        encoded = _VARIABLE.sub(rb"\1" + _REMOVED_BYTES, encoded)
    encoded = _HEADER.sub(rb"\1\2" + _REMOVED_BYTES, encoded)
    return _FORMS.sub(_REMOVED_BYTES, encoded).decode(errors="surrogatepass")


def _redact_pairs(line: bytes) -> bytes:
    """Remove the value after each name that means a secret: `name=…`, `"name": …`, `--name …`."""
    kept: list[bytes] = []
    position = written = 0
    while (word := _SECRET_WORD.search(line, position)) is not None:
        name = _NAME.match(line, word.end())
        end = word.end() if name is None else name.end()
        begin = _find_name_start(line, word.start(), position)
        position = end
        if _is_secret(line[begin:end].decode(errors="replace")):
            start = _find_value_start(line, begin, end)
            if start is not None:
                position = _find_value_end(line, start, is_header=_is_header(line[begin:end]))
                kept += [line[written:start], _REMOVED_BYTES]
                written = position
    return b"".join([*kept, line[written:]])


def _find_name_start(line: bytes, start: int, limit: int) -> int:
    """Return where the name begins that contains the word at the position `start`.

    For the word `token`, the name may be `api_token`. The result is at most 100 characters before
    `start`, and not before `limit`.
    """
    before = line[max(limit, start - 100) : start]
    return start - (len(before) - len(before.rstrip(_NAME_BYTES)))


def _find_value_start(line: bytes, begin: int, end: int) -> int | None:
    """Return the start of the value that follows the name `line[begin:end]`.

    The result is None if no value follows, as after a word in prose.
    """
    separator = _SEPARATOR.match(line, end)
    if separator is not None:
        is_list = separator.group(2) == b","
        is_named = separator[1] is not None and _QUOTE.match(line, separator.end()) is not None
        if is_list and not is_named:
            return None
        return None if separator.end() >= len(line) else separator.end()
    blanks = _BLANKS.match(line, end)
    if line[begin : begin + 1] == b"-" and blanks is not None and blanks.end() < len(line):
        return blanks.end()
    return None


def _find_value_end(line: bytes, start: int, *, is_header: bool) -> int:
    quote = _QUOTE.match(line, start)
    if quote is not None:
        return _find_closing_quote(line, quote.group(), quote.end())
    if line[start : start + 1] in {b"[", b"{"}:
        return _find_closing_bracket(line, start)
    if is_header:
        end = line.find(b"\n", start)
        return len(line) if end < 0 else end
    unquoted = _UNQUOTED.match(line, start)
    return start if unquoted is None else unquoted.end()


def _find_closing_quote(line: bytes, quote: bytes, start: int) -> int:
    """Return the position of the closing quote, or the end of the line if it has none.

    The closing quote has as many backslashes as the opening one (`quote`).
    """
    position = start
    while (at := _QUOTE.search(line, position)) is not None:
        if at.group() == quote:
            return at.start()
        position = at.end()
    return len(line.rstrip(b"\r\n"))


def _find_closing_bracket(line: bytes, start: int) -> int:
    depth, position, open_quote, slashes = 0, start, b"", None
    for _ in range(_MAX_MARKS):
        at = _STRUCTURE.search(line, position)
        if at is None:
            break
        mark, position = at.group(), at.end()
        if mark in b"[]{}":
            if not open_quote:
                depth += 1 if mark in b"[{" else -1
                if depth <= 0:
                    return position
            continue
        slashes = len(mark) if slashes is None else slashes
        if len(mark) == slashes and open_quote in {b"", mark}:
            open_quote = b"" if open_quote else mark
    return len(line.rstrip(b"\r\n"))


def _is_secret(name: str) -> bool:
    raw = name.encode(errors="replace")
    return (
        _SECRET_WORD.search(raw) is not None and _HARMLESS_NAME.fullmatch(raw.lstrip(b"-")) is None
    )


def _is_header(name: bytes) -> bool:
    return name.lower().lstrip(b"-").endswith((b"authorization", b"cookie"))


def _redact_url(match: Any) -> bytes:
    """Remove user, query, fragment, and a path that may contain a token, from a URL."""
    scheme, rest = match.group(1), match.group(2)
    rest = rest.rpartition(b"@")[2] if b"@" in rest else rest
    rest = rest.partition(b"#")[0]
    rest, query, _ = rest.partition(b"?")
    host, slash, path = rest.partition(b"/")
    user = _REMOVED_BYTES + b"@" if b"@" in match.group(2) else b""
    if scheme.lower() in {b"http", b"https"} and path:
        path = _RANDOM.sub(_redact_random_segment, path) if _is_open(host) else _REMOVED_BYTES
    return b"".join([scheme, b"://", user, host, slash, path, query and b"?" + _REMOVED_BYTES])


def _is_open(host: bytes) -> bool:
    name = host.decode(errors="replace").lower().partition(":")[0]
    return name.endswith(HOSTS) or not name.strip("0123456789.") or host.startswith(b"[")


def _redact_random_segment(match: Any) -> bytes:
    """Remove a long path segment that mixes letters and digits, because it may be a token."""
    part: bytes = match.group()
    is_mixed = not part.isdigit() and not part.replace(b"_", b"").isalpha()
    return _REMOVED_BYTES if is_mixed else part


def _redact_user_info(match: Any) -> bytes:
    """Remove the password from `user:password@host`.

    An image digest, which also follows an @, is kept.
    """
    if match.group(3).startswith(b"sha256"):
        return cast("bytes", match.group())
    return cast("bytes", match.group(1) + _REMOVED_BYTES + b"@" + match.group(3))


def _redact_items(values: list[object], key: str) -> list[object]:
    """Return a list without confidential items.

    In a command, the item after a flag such as `--token` is removed.
    """
    if key in _ENVIRONMENTS:
        return [_redact_variable(value) for value in values]
    kept: list[object] = []
    for before, item in zip(["", *values], values, strict=False):
        is_removed = isinstance(before, str) and isinstance(item, str) and _is_secret_flag(before)
        kept.append(REMOVED if is_removed else redact_value(item, key))
    return kept


def _is_secret_flag(flag: str) -> bool:
    if flag in {"-e", "--env", "-H", "--header", "-u", "--user"}:
        return True
    return flag.startswith("-") and "=" not in flag and " " not in flag and _is_secret(flag)


def _redact_variable(variable: object) -> object:
    """Remove the value of an environment variable; `valueFrom` is kept."""
    if isinstance(variable, str):
        return f"{variable.partition('=')[0]}={REMOVED}"
    if not isinstance(variable, dict):
        return variable
    fields = cast("dict[str, Any]", variable)
    return fields | ({"value": REMOVED} if "value" in fields else {})


def _redact_mapping(fields: dict[str, Any], key: str) -> dict[str, Any]:
    if key in _ENVIRONMENTS:
        return dict.fromkeys(fields, REMOVED)
    if key == "annotations":
        return {name: _redact_annotation(name, value) for name, value in fields.items()}
    if "header" in key.lower():
        fields = {
            name: REMOVED if isinstance(value, str) and _is_closed_header(name, fields) else value
            for name, value in fields.items()
        }
    kept = {name: _redact_field(name, value) for name, value in fields.items()}
    named = fields.get("name")
    if (
        "value" in fields
        and isinstance(named, str)
        and (_is_secret(named) or key in {"set", "add", "queryParams", ""})
        and named.lower() not in HEADERS
    ):
        kept["value"] = REMOVED
    return kept


def _is_closed_header(name: str, fields: dict[str, Any]) -> bool:
    """Return whether a field holds the value of a header that must be removed.

    Only the headers in `HEADERS` are kept.
    """
    if "name" in fields:
        return name == "value" and str(fields["name"]).lower() not in HEADERS
    return name.lower() not in HEADERS


def _redact_field(name: str, content: object) -> object:
    if name in {"url", "webhook", "webhookUrl", "webhookURL"} and isinstance(content, str):
        return _reduce_to_origin(content)
    if name in _REFERENCES or isinstance(content, bool) or content is None:
        return redact_value(content, name)
    if not _is_secret(name) or name in _ENVIRONMENTS:
        return redact_value(content, name)
    if isinstance(content, dict):
        fields = cast("dict[str, Any]", content)
        if any(key in _REFERENCES for key in _list_keys_below(fields)):
            return _redact_reference(fields)
    return REMOVED


def _list_keys_below(fields: dict[str, Any]) -> list[str]:
    """Return the keys of a mapping and of the mappings that are its direct values."""
    children = (
        cast("dict[str, Any]", inner) for inner in fields.values() if isinstance(inner, dict)
    )
    return [*fields, *(name for child in children for name in child)]


def _redact_reference(fields: dict[str, Any]) -> dict[str, Any]:
    """Keep the fields that refer to a secret; replace the values of all other fields."""
    return {
        name: value if name in _REFERENCES or name == "valueFrom" else REMOVED
        for name, value in fields.items()
    }


def _reduce_to_origin(url: str) -> str:
    """Reduce a URL to scheme, host and port, because its other parts may contain a token."""
    scheme, mark, rest = url.partition("://")
    host = rest.partition("?")[0].partition("#")[0]
    host, slash, _ = host.rpartition("@")[2].partition("/")
    return f"{scheme}://{host}{slash}{REMOVED if slash else ''}" if mark else REMOVED


def _redact_annotation(name: str, content: object) -> object:
    if name not in ANNOTATIONS or not isinstance(content, str):
        return REMOVED
    if not content.startswith(("{", "[")):
        return redact_text(content)
    try:
        read: object = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return REMOVED
    return msgspec.json.encode(redact_value(read)).decode()


def _redact_serve_config(config: str) -> str:
    try:
        read: object = yaml.safe_load(config)
    except (yaml.YAMLError, RecursionError, ValueError):
        return REMOVED
    return yaml.safe_dump(redact_value(read), sort_keys=False)
