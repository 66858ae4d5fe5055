"""A dictionary of nasty values: what a hostile tenant writes where something else is expected.

Each list holds what was seen to break parsers, planners or terminals somewhere, in raybus or elsewhere.
"""

from typing import Any, Final

LONG: Final = 200_000
"""Characters of a long text. The API server accepts 262,144 bytes of annotations on one object."""
DEEP: Final = 20_000
"""Levels of brackets in a deeply nested text."""

INTEGERS: Final = (
    0,
    1,
    -1,
    2,
    99,
    100,
    101,
    1000,
    60_000,
    2**31 - 1,
    -(2**31),
    2**31,
    2**63 - 1,
    -(2**63),
    2**64,
    10**30,
)
NUMBERS: Final = (0.0, -0.0, 0.1, -1.5, 1e300, 1e-300, 5e-324)
NAMES: Final = (
    "",
    "a",
    "0",
    "1-a",
    "-a",
    "a-",
    "a.b.c",
    "A",
    "a_b",
    "a" * 47,
    "a" * 48,
    "a" * 63,
    "a" * 64,
    "a" * 253,
    "a" * 254,
    "../../tenant-b/secrets/prod-ray",
    "..",
    ".",
    "/",
    "a/b",
    "a%2fb",
    "default",
    "headgroup",
    "None",
    "null",
    "true",
    "ray-head",
    "kubernetes.default.svc",
    "169.254.169.254",
    "[::1]",
    "a\x00b",
    "a\nb",
    "\x1b[2J\x1b[31m",
    "[/red]",
    "{{ .Values.x }}",
    "$(RAY_IP)",
    "${HOME}",
    "`id`",
    "; rm -rf / #",
    "' OR 1=1 --",
    "é",
    "éé" * 30,
    "\u202eabc",
    "\ufeff",
    "💣" * 20,
    "\U0010ffff",
    "İ",
    "ß",
    "٣",
)
LABEL_VALUES: Final = (
    "",
    "a",
    "0",
    "-1"[1:],
    "head",
    "worker",
    "redis-cleanup",
    "true",
    "9" * 63,
    "a" * 63,
    "a.b_c-d",
    "00",
    "RayService",
)
"""What the API server admits as the value of a label."""
QUANTITIES: Final = (
    "0", "1", "-1", "1e5000", "1e-5000", "1e9999999999", "9" * 5001, "9" * 129, "0.0000000001", "1Ei", "16Ei", "100000000Ei", "1n", "1u",
    ".5", "5.", "+1", "1e3", "1E3", "1Ki", "1ki", "NaN", "Inf", "-Inf", "", " 1", "1 ", "0x10", "1_000", "٣", "1m", "1.5m", "1e", "1e+",
)  # fmt: skip
DURATIONS: Final = (
    "0", "-5m", "5m", "1s", "1ns", "1000000h", "9223372036s", "99999999999999999999h", "1h1h1h", "1.5", ".5s", "5", "-5", "5 m", "5M",
    "1e9", "NaN", "inf", "9" * 5000, "9" * 5000 + "s", "1" * LONG, "1" * LONG + "x", "1." * (LONG // 2), "1s" * (LONG // 2), "1s" * (LONG // 2) + "x",
)  # fmt: skip
MOMENTS: Final = (
    "2026-01-01T12:00:00Z", "2026-01-01T12:00:00", "2026-01-01", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59", "2026-01-01T12:00:00.999999999Z", "1970-01-01T00:00:00Z", "2026-13-45T99:99:99Z", "yesterday", "", "0", "1e300",
)  # fmt: skip
STORED_MOMENTS: Final = (
    "2026-01-01T12:00:00Z",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "2199-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
)
"""Moments that the API server stores where the schema asks for one."""
JSON_TEXTS: Final = (
    "", "{", "}", "[]", "{}", "null", "true", "0", '"x"', "NaN", "1e999", "-0", "9" * 5000, '{"a":1,"a":2}', '{"\\ud800":1}', '"\\u0000"',
    "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"x":' * DEEP, '{"x":' * DEEP + "1" + "}" * DEEP, '{"clusters":' + "[" * DEEP + "]" * DEEP + "}",
    '{"clusters":{}}', '{"clusters":null}', '{"clusters":[]}', "[" + "1," * (LONG // 2) + "1]", '{"version":' + "9" * 400 + "}",
)  # fmt: skip
SWITCHES: Final = (
    "",
    "true",
    "false",
    "True",
    "1",
    "0",
    "yes",
    "2",
    "99999999999999999999",
    "٣",
    " true ",
    "true\n",
    "null",
)
TEXTS: Final = (
    *NAMES,
    *SWITCHES,
    "x" * LONG,
    "9" * 63,
    "9" * 5000,
    "\x00" * 1000,
    "a,b,,c" * 1000,
    "," * LONG,
    "a: b",
    "%s%s%n",
    "{0}{1}",
    "{x}",
    "\\",
    '"',
)

BOMB: Final = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
_APP: Final = "- name: app\n  import_path: app:main\n"
YAML_TEXTS: Final = (
    "", " ", "null", "[]", "{}", "applications:", "applications: {}", "applications: []", "applications: [null]", "applications: [1, x, []]",
    "applications:\n- {}\n", "applications:\n" + _APP, "applications:\n" + _APP * 2, "applications:\n" + _APP * 2000, "- a", "a", "1", "~", "!!binary x",
    "!!python/object/apply:os.system [id]", "&a [*a]", "a: &a {b: *a}", BOMB, "applications: &a [*a]", "<<: {a: b}", "<<: [1, 2]", "? {a: b}\n: c",
    "applications:\n- name: " + "n" * 5000 + "\n  import_path: x\n", "applications:\n- name: {a: b}\n  import_path: [x]\n", "[" * 5000, "{a: " * 5000,
    "a: " + "9" * 6000, "a: 0x" + "f" * 5000, "a: 1e99999", "a: .nan", "a: .inf", "1: 2", "true: 1", "null: 1", "applications:\n- name: null\n",
    "target_capacity: x", "target_capacity: -1\napplications: []", "target_capacity: 1e300\napplications:\n" + _APP, "target_capacity: {}\napplications:\n" + _APP,
    "http_options: []\napplications:\n" + _APP, "proxy_location: 7\napplications:\n" + _APP, "applications:\n- deployments: {a: 1}\n  import_path: x:y\n",
    "applications:\n- deployments: [1, null, {name: 3}]\n  import_path: x:y\n", "applications:\n- deployments: [{name: d, num_replicas: -1}]\n  import_path: x:y\n",
    "applications:\n- deployments: [{name: d, autoscaling_config: {min_replicas: x, max_replicas: null}}]\n  import_path: x:y\n",
    "applications:\n- {name: a, import_path: 'x:y', route_prefix: 1}\n- {name: a, import_path: 'x:y', route_prefix: 1}\n",
    "\x00", "\ufeffapplications: []", "applications: \x85 []", "a: \x1b[2J", "---\na: 1\n---\nb: 2\n", "%YAML 9.9\n---\na: 1\n", "\t- a", "x" * LONG,
    "#" * LONG, "applications:\n" + "- {}\n" * 20_000, "a: |\n" + "  x\n" * 20_000, "é: ü", "a: '2026-01-01'", "a: 2026-01-01", "a: 1:2:3", "=: =",
)  # fmt: skip
"""Values of `serveConfigV2`."""

_NODE: Final = '{"status":"HEALTHY","node_ip":"10.0.0.1"}'


def _an_app(deployment: str, more: str = "") -> str:
    return f'{{"applications":{{"app":{{"status":"RUNNING","deployments":{{"d":{deployment}}}{more}}}}},"proxies":{{"n":{_NODE}}}}}'


ANSWERS: Final = tuple(
    each.encode(errors="surrogatepass")
    for each in (
        "", "null", "[]", "{}", "true", "<html>", "x" * 100_000, "[" * DEEP, '{"x":' * DEEP, '{"applications":null}', '{"applications":[]}',
        '{"applications":{"":{}}}', '{"applications":{"a":null}}', '{"applications":{"a":{"status":7}}}', '{"applications":{"\\u001b[2J":{"status":"RUNNING"}}}',
        '{"applications":{},"target_capacity":1e300}', '{"applications":{},"target_capacity":-5}', '{"applications":{},"target_capacity":"x"}',
        '{"applications":{},"proxies":{"a":{"status":"HEALTHY","node_ip":"\\u0000"}}}', '{"applications":{},"proxy_location":"x"}',
        _an_app('{"status":"HEALTHY","target_num_replicas":-1,"replicas":[]}'),
        _an_app('{"status":"HEALTHY","target_num_replicas":9223372036854775807,"replicas":[]}'),
        _an_app('{"status":"HEALTHY","target_num_replicas":' + "9" * 40 + ',"replicas":[]}'),
        _an_app('{"status":"HEALTHY","target_num_replicas":1,"replicas":[{"state":"RUNNING","start_time_s":1e300,"node_ip":"10.0.0.1"}]}'),
        _an_app('{"status":"HEALTHY","target_num_replicas":1,"replicas":[{"state":"RUNNING","start_time_s":-1e18,"node_ip":""}]}'),
        _an_app('{"status":"HEALTHY","target_num_replicas":1,"replicas":[{"state":"RUNNING","start_time_s":253402300799}]}'),
        _an_app('{"status":"HEALTHY","deployment_config":{"autoscaling_config":{"min_replicas":-1,"max_replicas":' + "9" * 400 + "}}}"),
        _an_app('{"status":"HEALTHY","deployment_config":{"autoscaling_config":[]}}'),
        _an_app('{"status":"HEALTHY"}', ',"deployed_app_config":{"name":7,"import_path":[],"deployments":{}}'),
        _an_app('{"status":"HEALTHY"}', ',"deployed_app_config":{"deployments":[1,null,{"name":null}]}'),
        _an_app('{"status":"HEALTHY"}', ',"deployed_app_config":{"x":' + "9" * 5000 + "}"),
        _an_app('{"status":"' + "S" * 50_000 + '","message":"' + "\\u001b[2J" * 5000 + '"}'),
        '{"applications":{' + ",".join(f'"a{n}":{{"status":"RUNNING","deployments":{{"d":{{}}}}}}' for n in range(3000)) + "}}",
        "\ud800",
    )
)  # fmt: skip
"""What a dashboard answers instead of its status."""
METRICS: Final = tuple(
    each.encode()
    for each in (
        "", "ray_serve_num_ongoing_http_requests NaN", "ray_x 1\nray_serve_num_ongoing_http_requests 1e308\nray_serve_num_ongoing_http_requests 1e308",
        "ray_x 1\nray_serve_num_ongoing_http_requests -5", "ray_x 1\nray_serve_num_ongoing_http_requests " + "9" * 5000,
        "ray_x 1\nray_serve_num_ongoing_http_requests{a=\"" + "}" * 100_000, "ray_x 1\nray_serve_replica_processing_queries{} inf",
        "ray_x 1\nray_serve_num_http_requests_total{a=\"" + "x" * 2**20 + "\"} 1", "ray_x 1\nray_serve_num_http_requests_total{" + ",a=\"\\" * 2**18,
        "ray_x 1\n" + "ray_serve_num_http_requests_total{} 1\n" * 2**15, "ray_x 1\n" + "".join(f'ray_serve_num_http_requests{{route="/{n}"}} 9\n' for n in range(2**14)),
    )
)  # fmt: skip
"""The metrics of a node."""

VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    [[]],
    {"": None},
    {"a": {"b": [1, "x", None]}},
    [{"a": 1}] * 3,
    ["a", 1, None],
    "x",
    "",
    *INTEGERS,
    *NUMBERS,
)
"""JSON that stands where something else is expected."""


def nested(levels: int) -> Any:
    """Return lists within lists."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value
