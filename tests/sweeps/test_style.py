from __future__ import annotations

import pytest

from attnsvm.sweeps import style
from tests.sweeps.synthetic import HOSTILE


def test_hostile_text_is_drawn_as_it_stands():
    with style.paper():
        fig = style.figure(3, 2)
        ax = fig.subplots()
        style.heading(ax, style.plain(HOSTILE))
        style.note(fig, [HOSTILE * 3, "漢字 \U0001f600"])
        assert style.png(fig).startswith(b"\x89PNG")


def test_plain_is_one_short_line_without_formulas():
    shown = style.plain(HOSTILE * 5, limit=50)
    assert len(shown) == 50
    assert "$" not in shown
    assert shown.isprintable()
    assert style.plain(style.plain(HOSTILE)) == style.plain(HOSTILE)


def test_pdf_embeds_its_fonts_and_is_the_same_every_time():
    def drawn() -> bytes:
        with style.paper():
            fig = style.figure(3, 2)
            fig.subplots().set_title("mean rank of $W_{mm}$")
            return style.pdf(fig)

    first = drawn()
    assert first == drawn()
    assert b"FontFile2" in first  # an embedded TrueType font
    assert b"/Type3" not in first


@pytest.mark.parametrize("values", [[5.0], [1, 2, 3, 20], list(range(40))])
def test_ticks_stand_at_the_values_of_a_small_grid(values: list[float]):
    ax = style.figure(3, 2).subplots()
    ax.plot(values, values)
    style.ticks_at(ax, values)
    assert (list(ax.get_xticks()) == sorted(values)) == (len(values) <= 12)


def test_log_axes_span_at_least_a_decade_and_colours_are_distinct():
    ax = style.figure(3, 2).subplots()
    ax.plot([1, 2], [3e-3, 4e-3])
    style.log_axis(ax.yaxis)
    low, high = ax.get_ylim()
    assert high / low >= 9.99
    for n in (3, 7, 12):
        assert len(set(style.colours(range(n)).values())) == n
