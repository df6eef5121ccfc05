"""Statements are read as their session had them read: quoting by sql_mode, conditional comments by
flavor and version."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.wire.sql.syntax.tokens import (
    ANSI_QUOTES,
    MAX_LENGTH,
    NO_BACKSLASH_ESCAPES,
    Session,
    Token,
    TokenKind,
    Unreadable,
    is_read,
    tokenize,
)

MYSQL = Session(0, "utf8mb4", False, 80_036)
MARIADB = Session(0, "utf8mb4", True, 101_119)
ANSI = Session(ANSI_QUOTES, "utf8mb4", False, 80_036)
PLAIN = Session(NO_BACKSLASH_ESCAPES, "utf8mb4", False, 80_036)
BOTH = Session(ANSI_QUOTES | NO_BACKSLASH_ESCAPES, "utf8mb4", False, 80_036)
LATIN1 = Session(0, "latin1", False, 80_036)
EVERY = (MYSQL, MARIADB, ANSI, PLAIN, BOTH, LATIN1)


def word(text: str) -> Token:
    return Token(TokenKind.WORD, text)


def name(text: str) -> Token:
    return Token(TokenKind.NAME, text)


def string(text: str) -> Token:
    return Token(TokenKind.STRING, text)


def number(text: str) -> Token:
    return Token(TokenKind.NUMBER, text)


def literal(text: str) -> Token:
    return Token(TokenKind.LITERAL, text)


def symbols(text: str) -> list[Token]:
    return [Token(TokenKind.SYMBOL, c) for c in text]


DOT = symbols(".")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", []),
        (" \t\n\v\f\r", []),
        ("ALTER TABLE t", [word("ALTER"), word("TABLE"), word("t")]),
        ("a.b", [word("a"), *DOT, word("b")]),
        ("a . b", [word("a"), *DOT, word("b")]),
        ("`a`.`b``c`", [name("a"), *DOT, name("b`c")]),
        ("a.1e5", [word("a"), *DOT, word("1e5")]),
        ("`a`.12", [name("a"), *DOT, word("12")]),
        (".b", [*DOT, word("b")]),
        ("1st", [word("1st")]),
        ("a$b_1", [word("a$b_1")]),
        ("(1,2.5,.5,3.,1e5,1E-5,-7)", [*symbols("("), number("1"), *symbols(","), number("2.5"), *symbols(","),
         number(".5"), *symbols(","), number("3."), *symbols(","), number("1e5"), *symbols(","), number("1E-5"),
         *symbols(",-"), number("7"), *symbols(")")]),
        ("0xFF 0b01 0xG", [literal("0xFF"), literal("0b01"), word("0xG")]),
        ("x'0f' B'01' n'a''b' N 'a'", [literal("x'0f'"), literal("B'01'"), literal("n'a''b'"), word("N"), string("a")]),
        ("_latin1 'a' _utf8'b'", [word("_latin1"), string("a"), word("_utf8"), string("b")]),
        ("'it''s' ''", [string("it's"), string("")]),
        ("a-- b", [word("a")]),
        ("a --b", [word("a"), *symbols("--"), word("b")]),
        ("a --\nb", [word("a"), word("b")]),
        ("a --", [word("a")]),
        ("a#b\nc", [word("a"), word("c")]),
        ("a/* ' */b", [word("a"), word("b")]),
        ("a/**/b", [word("a"), word("b")]),
        ("a/*/ b */c", [word("a"), word("c")]),
        ("a/* /* */b", [word("a"), word("b")]),
        ("a / b", [word("a"), *symbols("/"), word("b")]),
        ("@a := @@b", [*symbols("@"), word("a"), *symbols(":=@@"), word("b")]),
        ("'--' '#' '/*'", [string("--"), string("#"), string("/*")]),
        ("`--` `/*`", [name("--"), name("/*")]),
        # conditional comments that every server executes
        ("a /*! b */ c", [word("a"), word("b"), word("c")]),
        ("a/*!50001b*/", None),
        ("a /*!50001 b */ c", [word("a"), word("b"), word("c")]),
        ("a /*!50001 '*/' */ c", [word("a"), string("*/"), word("c")]),
        ("a /*!*/ c", [word("a"), word("c")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("session", EVERY, ids=["mysql", "mariadb", "ansi", "plain", "both", "latin1"])
def test_what_every_session_reads_alike(sql: str, expected: list[Token] | None, session: Session) -> None:
    if expected is None:
        with pytest.raises(Unreadable):
            tokenize(sql, session)
    else:
        assert list(tokenize(sql, session)) == expected


@pytest.mark.parametrize(
    ("sql", "session", "expected"),
    [
        # double quotes: a string, or a name in which a backslash is a backslash
        ('"a""b"', MYSQL, [string('a"b')]),
        ('"a""b"', ANSI, [name('a"b')]),
        ('"a\\"b"', MYSQL, [string('a"b')]),
        ('"a\\" b', ANSI, [name("a\\"), word("b")]),
        ('"a".1', ANSI, [name("a"), *DOT, word("1")]),
        # backslashes
        (r"'a\'b'", MYSQL, [string("a'b")]),
        (r"'a\'b'", ANSI, [string("a'b")]),
        (r"'a\' b", PLAIN, [string("a\\"), word("b")]),
        (r'"a\" b', PLAIN, [string("a\\"), word("b")]),
        (r'"a\" b', BOTH, [name("a\\"), word("b")]),
        (r"'\0\b\n\r\t\Z\\\'\"\%\_\x'", MYSQL, [string("\0\b\n\r\t\x1a\\'\"\\%\\_x")]),
        (r"'\\'", PLAIN, [string("\\\\")]),
        (r"'\\''a'", MYSQL, [string("\\'a")]),
        (r"`a\`", MYSQL, [name("a\\")]),
        # characters
        ("größe", MYSQL, [word("größe")]),
        ("'größe' `größe`", LATIN1, [string("größe"), name("größe")]),
        ("a\u00a0b", MYSQL, [word("a\u00a0b")]),
        # /*M! */ is code for MariaDB alone; versions
        ("a /*M! b */", MYSQL, [word("a")]),
        ("a /*M! b */", MARIADB, [word("a"), word("b")]),
        ("a /*M!100100 b */", MARIADB, [word("a"), word("b")]),
        ("a /*M!110000 b */", MARIADB, [word("a")]),
        ("a /*M!80000 b */", MARIADB, [word("a"), word("b")]),
        ("a /*!80036 b */", MYSQL, [word("a"), word("b")]),
        ("a /*!80037 b */", MYSQL, [word("a")]),
        ("a /*!100000 b */", MYSQL, [word("a")]),
        ("a /*!100000 b */", MARIADB, [word("a"), word("b")]),
        ("a /*!50699 b */", MARIADB, [word("a"), word("b")]),
        ("a /*!50700 b */", MARIADB, [word("a")]),
        ("a /*!99999 ' */ c", MARIADB, [word("a"), word("c")]),
        ("a /*!50699 b */", Session(0, "utf8mb4"), [word("a"), word("b")]),
    ],
)
def test_what_depends_on_the_session(sql: str, session: Session, expected: list[Token]) -> None:
    assert list(tokenize(sql, session)) == expected


@pytest.mark.parametrize(
    ("sql", "session"),
    [
        *[
            (sql, session)
            for session in EVERY
            for sql in (
                "'a", "`a", '"a', "'a''", "``a`", "a /* b", "a /*! b", "a /*!50001 b", "a */ b",
                "a /*! b /* c */ d */", "a /*! b /*! c */ d */", "a /*!1 b */", "a /*!500011 1*/ /*!5000111 b */",
                "$$ a $$", "$tag$ a $tag$", "1e5x", "12.a", "1.2.3", "a 1e", "a\0b", "'\0'", "\ufffd", "a\ufffd", "`\ufffd`",
                "a \x01 b", "a [b]", "{d '2024-01-01'}", "a\\N", "a\u0085\0",
            )
        ],
        (r"'a\'", MYSQL),
        ("'a' -- '", Session(None, "utf8mb4")),
        ("a", Session(0, "")),
        ("a", Session(0, "swe7")),
        ("a", Session(0, "utf16")),
        ("a", Session(0, "nonsense")),
        ("'漢'", Session(0, "gbk")),
        ("größe", LATIN1),
        ("a\u00a0b", LATIN1),
        ("a /*!80000 b */", Session(0, "utf8mb4")),
        ("a /*!80037 b /* c */ d */", MYSQL),
        ("a", Session(1 << 9, "utf8mb4", True)),
        ("a", Session(1 << 10, "utf8mb4", True)),
        ("a" * (MAX_LENGTH + 1), MYSQL),
    ],
)  # fmt: skip
def test_doubt_is_unreadable(sql: str, session: Session) -> None:
    with pytest.raises(Unreadable):
        tokenize(sql, session)


def test_ascii_text_is_read_in_any_character_set_that_contains_ascii() -> None:
    for charset in ("gbk", "sjis", "big5", "latin2", "ascii", "utf8mb3"):
        assert tokenize("DROP TABLE `a`", Session(0, charset))[-1] == name("a")


def test_strict_sql_modes() -> None:
    assert Session(1 << 21).strict
    assert Session(1 << 22).strict
    assert not Session(1 << 23).strict
    assert not Session(None).strict


_PIECES = ["a", "1", ".", "'", '"', "`", "\\", "/*", "*/", "/*!", "/*M!", "50001", "80000", "--", "#", "\n", " ", "$",
           "e", "x'", "é", "\x00", ";", "("]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_PIECES), max_size=40), st.sampled_from(EVERY))
def test_anything_is_read_or_unreadable(pieces: list[str], session: Session) -> None:
    """No other exception, whatever the text is."""
    with contextlib.suppress(Unreadable):
        tokenize("".join(pieces), session)


@pytest.mark.parametrize(
    "piece", ["'", "''", "'a", "\\'", "`", '"', "/*", "/*!", "*/", "--", "1.", ".1", "1e", "a.", "$", "("]
)
@pytest.mark.parametrize("session", [MYSQL, BOTH], ids=["escapes", "plain"])
def test_time_grows_with_length_only(piece: str, session: Session) -> None:
    """The assertion is the test's timeout: squared, it would be hours."""
    with contextlib.suppress(Unreadable):
        tokenize(piece * 60_000, session)


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(exclude_characters="\0\ufffd", exclude_categories=["Cs"])),
    st.sampled_from([MYSQL, MARIADB, ANSI]),
)
def test_a_quoted_text_is_one_token(text: str, session: Session) -> None:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    assert tokenize(f"'{escaped}'", session) == (string(text),)
    assert tokenize("`" + text.replace("`", "``") + "`", session) == (name(text),)
    plain = Session(NO_BACKSLASH_ESCAPES, "utf8mb4", session.mariadb, session.version)
    assert tokenize("'" + text.replace("'", "''") + "'", plain) == (string(text),)


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("ADD c INT COMMENT 'caf\ufffd'", True),
        ("ADD c INT COMMENT = 'caf\ufffd' /* \ufffd */ -- \ufffd", True),
        ("ADD c VARBINARY(4) DEFAULT _binary'\ufffd'", False),
        ("ADD c INT COMMENT 'x', MODIFY d ENUM('\ufffd')", False),
        ("ADD c INT DEFAULT '\ufffd' COMMENT 'x'", False),
    ],
)
def test_bytes_that_are_no_characters_are_literals_all_the_same(sql: str, read: bool) -> None:
    assert is_read(tokenize(sql, MYSQL)) is read
