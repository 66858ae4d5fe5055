"""The modules that are written for builds."""

from localcluster import binaries, build_sources

UPSTREAM = """module example.org/upstream

require example.org/a v1.0.0

replace example.org/one => example.org/two v1.2.3

replace example.org/nested => ./nested

// forks
replace (
\texample.org/three => example.org/four v0.0.0-20260101000000-abcdef
\tgithub.com/abbot/go-http-auth => example.org/unpublished v0.1.0
)

// ambiguous
exclude example.org/five v3.0.83+incompatible
"""


def test_replacements_by_published_modules_are_repeated() -> None:
    lines = build_sources.format_module_file("traefik", UPSTREAM).splitlines()
    assert "replace example.org/one => example.org/two v1.2.3" in lines
    assert "replace example.org/three => example.org/four v0.0.0-20260101000000-abcdef" in lines
    assert "exclude example.org/five v3.0.83+incompatible" in lines
    assert not any("nested" in line or "unpublished" in line for line in lines)


def test_modules_that_are_written_for_a_build_replace_those_of_upstream() -> None:
    lines = build_sources.format_module_file("traefik", UPSTREAM).splitlines()
    assert lines[-3:] == [
        "replace github.com/go-acme/lego/v5 => ./lego",
        "replace github.com/traefik/traefik/dynamic/ext => ./ext",
        "replace github.com/abbot/go-http-auth => ./go-http-auth",
    ]


def test_other_groups_repeat_nothing() -> None:
    text = build_sources.format_module_file("contour", UPSTREAM)
    assert "replace" not in text


def test_each_program_has_a_module() -> None:
    assert {program.group for program in build_sources.PROGRAMS.values()} <= {
        *build_sources.MODULES
    }
    names = (binaries.CONTOUR, binaries.TRAEFIK, binaries.ISTIO)
    assert all(build_sources.PROGRAMS[name].group in build_sources.INSTALLED for name in names)
