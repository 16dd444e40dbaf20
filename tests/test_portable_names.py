"""Names that another system can't hold travel in a form that gives them back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.errors import BadName
from codefyui_core.portable_names import check_name, from_portable, to_portable

PART = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=30
).filter(lambda part: part not in {".", ".."})
NAMES = st.lists(PART, min_size=1, max_size=4).map("/".join)


@given(NAMES, st.booleans())
def test_any_file_gets_a_name_that_every_system_holds_and_gets_its_own_back(name, windows):
    portable = to_portable(name, windows=windows)
    assert str(check_name(portable, windows=windows)) == portable
    assert from_portable(portable) == name


@given(
    st.binary(min_size=1, max_size=20).filter(
        lambda part: not {0, 47} & set(part) and part not in {b".", b".."}
    )
)
def test_bytes_that_are_no_text_come_back_as_they_were(part):
    name = part.decode("utf-8", "surrogateescape")
    assert from_portable(to_portable(name)).encode("utf-8", "surrogateescape") == part


@pytest.mark.parametrize(
    ("name", "portable"),
    [
        ("models/best.pt", "models/best.pt"),
        ("models/é.pt", "models/é.pt"),
        ("100%.pt", "100%.pt"),
        ("a%41.pt", "a%2541.pt"),
        ("aux.pt", "%61ux.pt"),
        ("dir /x.", "dir%20/x%2E"),
        ("a\\b.pt", "a%5Cb.pt"),
        ("C:x.pt", "C%3Ax.pt"),
        ("line\nbreak", "line%0Abreak"),
        ("epoch:1?.pt", "epoch%3A1%3F.pt"),
    ],
)
def test_only_what_can_not_be_held_is_escaped(name, portable):
    assert to_portable(name, windows=True) == portable


def test_elsewhere_than_on_windows_its_characters_are_kept():
    assert to_portable("epoch:1?.pt", windows=False) == "epoch:1?.pt"


@pytest.mark.parametrize("name", ["", "/etc/x", "a/../b", "..", "x" * 300])
def test_names_that_lead_elsewhere_have_no_other_form(name):
    with pytest.raises(BadName):
        to_portable(name)
