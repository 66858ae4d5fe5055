"""The pictures of the dashboard in the documentation show the current texts of the page."""

from support import pictures


def test_every_picture_shows_the_texts_of_the_page() -> None:
    known = pictures.recorded()
    shown = {path.name for path in pictures.IMAGES.glob("dashboard-*.png")}
    stale = {name for name in shown if known.get(name) != pictures.texts_digest()}
    assert not stale, f"{', '.join(sorted(stale))}: {pictures.REMEDY}"
    assert known.keys() == shown
