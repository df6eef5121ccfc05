"""Text of others is data wherever it is shown: bounded, on one line, in quotation marks that it
cannot close."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import Reason, fail, from_json, message_parts
from cdcsync_core.quoting import LONGEST, quoted, visible

#: what attacks are made of, beside anything else
_ANY = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            ["; remedy: ", "; needed: ", ";\\ remedy: ", ";", "\n", "\r", "\x1b[31m", "\x9b", "\u202e", '"', "\\"]
        ),
    ),
    max_size=8,
).map("".join)


@given(_ANY)
def test_a_quotation_is_one_line_of_shown_characters_and_cannot_be_closed(text: str) -> None:
    found = quoted(text)
    assert found[0] == found[-1] == '"'
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") for c in found)
    inside = found[1:-1].replace("\\\\", "")
    assert '"' not in inside.replace('\\"', "")


def test_what_is_long_is_cut_and_said_to_be() -> None:
    found = quoted("a" * (LONGEST + 7))
    assert found == '"' + "a" * LONGEST + '" and 7 more characters'
    assert len(quoted("\x1b" * 10_000)) < 5 * LONGEST


def test_what_is_shown_as_itself_stays() -> None:
    assert quoted("Zugriff für 'größe' verweigert: 数据") == "\"Zugriff für 'größe' verweigert: 数据\""
    assert visible("a\tb\x1b[2J\u202e") == "a\\tb\\x1b[2J\\u202e"


@given(_ANY, _ANY, _ANY)
def test_no_part_of_a_message_passes_for_another(found: str, needed: str, remedy: str) -> None:
    """A message is taken apart where it was joined, whatever is in its parts."""
    error = fail(Reason.AUTHENTICATION_FAILED, found, needed=needed, remedy=remedy)
    assert "\n" not in error.message
    assert "\x1b" not in error.message
    parts = message_parts(error.message)
    assert (bool(parts["needed"]), bool(parts["remedy"])) == (bool(needed), bool(remedy))
    for part, own in (("found", error.found), ("needed", error.needed), ("remedy", error.remedy)):
        assert parts[part].replace(";\\ ", "; ") == own.replace(";\\ ", "; ")


@given(_ANY)
def test_an_error_is_the_same_after_a_journey(found: str) -> None:
    error = fail(Reason.SINK_CONFLICT, found, table="a.b")
    assert from_json(error.to_json()).message == error.message
