"""Parsed Serve configs that a process remembers."""

import asyncio

import pytest

from common.ray import go_yaml
from common.ray.serve_config_cache import SHORT, ServeConfigCache
from common.runtime.cache import ROOM
from support.memory import measured


async def test_a_config_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, short = ServeConfigCache(), "applications: [{name: once}]"
    long = "applications: []\n" + "# note\n" * SHORT
    first = cache.parse(short)
    assert cache.get(long) is None
    configs = await cache.read(short, None, long)

    monkeypatch.setattr(go_yaml, "load", None)
    assert cache.parse(short) is configs[short] is first
    assert await cache.read(long) == {long: configs[long]}
    assert configs[long].to_json() == {"applications": []}


def test_the_size_of_the_configs_is_limited() -> None:
    cache = ServeConfigCache()
    texts = [f"applications: [{{name: '{number}{'x' * 1_000_000}'}}]" for number in range(120)]
    with measured() as kept:
        for text in texts:
            cache.parse(text)
        assert kept() < 1.25 * ROOM
    assert cache.get(texts[0]) is None
    assert cache.get(texts[-1]) is not None


async def test_the_loop_goes_on_while_a_long_config_is_parsed() -> None:
    apps = "".join(
        f"- name: app{number}\n  import_path: a:b\n  args: {{lr: 1e-4, at: 10:30}}\n"
        for number in range(2_500)
    )
    cache, text, beats = ServeConfigCache(), f"applications:\n{apps}", 0
    assert len(text) > 150_000
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(cache.read(text))
        while not reading.done():
            await asyncio.sleep(0.005)
            beats += 1
    assert len(reading.result()[text].applications) == 2_500
    assert beats >= 5
