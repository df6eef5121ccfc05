"""What a server repeats of a login is in no message."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.account_texts import hidden_texts, without_texts


@pytest.mark.parametrize(
    ("message", "texts", "shown"),
    [
        ("Access denied for user 'pw-of-root'@'h'", ["pw-of-root"], "Access denied for user '***'@'h'"),
        ("for user 'a-long-secre'@'h'", ["a-long-secret"], "for user '***'@'h'"),
        ("user 'pw', expected", ["pw", "x"], "user '***', expected"),
        ("a word with word-2", ["word", "word-2"], "a *** with ***"),
        ("nothing", ["", "other"], "nothing"),
        ("", ["x"], ""),
        ("secret-1secret-1!", ["secret-1"], "******!"),
    ],
)
def test_messages_without_them(message: str, texts: list[str], shown: str) -> None:
    assert without_texts(message, texts) == shown


def test_a_name_is_hidden_where_its_key_may_be_any_secrets(tmp_path: Path) -> None:
    for key in ("username", "AWS_ACCESS_KEY_ID", "password", "user"):
        (tmp_path / key).write_text(f"of {key}\n")
    password = tmp_path / "password"
    assert hidden_texts(tmp_path / "username", password) == ("of password",)
    assert hidden_texts(tmp_path / "AWS_ACCESS_KEY_ID", password) == ("of password",)
    assert hidden_texts(tmp_path / "user", password) == ("of password", "of user")
    assert hidden_texts(tmp_path / "none", tmp_path / "none") == ()
    assert hidden_texts(None, None) == ()
