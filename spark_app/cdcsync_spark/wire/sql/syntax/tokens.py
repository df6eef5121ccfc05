"""A statement's text as tokens, exactly as the session that ran it had them read, or not at all.

Why it is right: quoting depends on the session's `sql_mode` (ANSI_QUOTES, NO_BACKSLASH_ESCAPES) and
conditional comments on the server's flavor and version; the Query event and its file's first event
say both. Each character belongs to one token or to what separates tokens; what servers read in
different ways, or not as here, raises `Unreadable`: quotes and comments without an end, comments
within comments, names of characters that could not be decoded, sql_mode MSSQL and ORACLE, dollar
quotes. So every token sequence is the server's own, or there is none. Bytes that are no character
of the session's set end no comment and no literal; what such a literal means is not known
(`is_read`). Sources: MySQL and MariaDB `sql/sql_lex.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import NamedTuple

from cdcsync_spark.wire.columns.charset import contains_ascii, is_single_byte, is_utf8

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
_STRICT = 1 << 21 | 1 << 22
#: brackets quote names; another grammar
_MSSQL, _ORACLE = 1 << 10, 1 << 9
#: stands for bytes that are no character
NOT_DECODED = "\ufffd"
#: statements beyond it are data, not definitions
MAX_LENGTH = 1 << 20


class Unreadable(Exception):
    """The statement cannot be read with certainty: it may mean anything."""


class Started(NamedTuple):
    """When a statement began, in unix seconds, and its session's time zone; `microseconds` is None
    and `time_zone` empty where the event does not say: the statement used neither."""

    seconds: int = 0
    microseconds: int | None = None
    time_zone: str = ""


_NOT_KNOWN = Started()


@dataclass(frozen=True, slots=True)
class Session:
    """How a statement was read: what its event and the binlog file's first event say.

    `sql_mode` is None and `charset` (of the client, by the server's name) is empty where the event
    does not say; so is `connection`, the character set that its literals are converted to.
    `timestamps` is `explicit_defaults_for_timestamp`, None where the event does not say (MariaDB).
    `version` is 80036 for 8.0.36 and 101119 for 10.11.19, and 0 if unknown.
    """

    sql_mode: int | None = None
    charset: str = ""
    mariadb: bool = False
    version: int = 0
    started: Started = _NOT_KNOWN
    connection: str = ""
    timestamps: bool | None = None

    @property
    def strict(self) -> bool:
        """Whether a value that does not fit is an error in every InnoDB table."""
        return self.sql_mode is not None and bool(self.sql_mode & _STRICT)


#: nothing is read of it with certainty
UNKNOWN_SESSION = Session()


class TokenKind(Enum):
    WORD = auto()  # a keyword or a name without quotes
    NAME = auto()  # a name in quotes
    STRING = auto()
    NUMBER = auto()
    LITERAL = auto()  # x'00', b'1', n'text', 0x00
    SYMBOL = auto()  # one character


class Token(NamedTuple):
    """`text` is what is between the quotes, unescaped; a number or a literal stays as it is
    written."""

    kind: TokenKind
    text: str


_IDENT = r"[A-Za-z0-9_$\x80-\U0010ffff]"
_SPACE = r"(?P<space>[ \t\n\v\f\r]++|--(?=[ \t\n\v\f\r]|\Z)[^\n]*+|\#[^\n]*+)"
_COMMENTS = r"(?P<conditional>/\*M?!)|(?P<comment>/\*)|(?P<close>\*/)"
_NUMBERS = (
    rf"(?P<literal>0x[0-9A-Fa-f]++(?!{_IDENT})|0b[01]++(?!{_IDENT}))"
    rf"|(?P<number>(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+(?!{_IDENT}|\.))"
)
_REST = rf"(?P<word>{_IDENT}++)|(?P<symbol>[!%&()*+,\-/:;<=>?@^|~]|\.(?!\d))"
_VERSION = re.compile(rf"\d{{5,6}}(?!{_IDENT})")
#: words that some server takes for a number, or for the beginning of a dollar quote
_DOUBTFUL = re.compile(r"\$|[0-9]++(?:[eE]?+\Z|[eE][0-9])")
_AFTER_DOT = re.compile(rf"[0-9]{_IDENT}*+")
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
#: up to this version a conditional comment is code for every server that there is
ALWAYS_CODE = 50_699
#: MariaDB takes a comment for MySQL 5.7 or later for one
NEVER_ON_MARIADB = range(50_700, 100_000)


def tokenize(sql: str, session: Session) -> tuple[Token, ...]:
    """All tokens of the statement; raises Unreadable."""
    mode = session.sql_mode
    if mode is None or mode & (_MSSQL | _ORACLE):
        raise Unreadable(f"sql_mode {mode}")
    if len(sql) > MAX_LENGTH or "\0" in sql:
        raise Unreadable("too long, or with a character that servers take for the end")
    _check_charset(sql, session.charset)
    return tuple(_Scan(sql, session, mode).tokens())


def is_read(tokens: Sequence[Token]) -> bool:
    """Whether all literals have their own characters; of comments that does not matter."""
    for number, token in enumerate(tokens):
        if NOT_DECODED in token.text and not _is_comment(tokens[max(0, number - 2) : number]):
            return False
    return True


def _is_comment(before: Sequence[Token]) -> bool:
    words = [t.text.upper() if t.kind in (TokenKind.WORD, TokenKind.SYMBOL) else "" for t in before]
    return words[-1:] == ["COMMENT"] or words == ["COMMENT", "="]


def _check_charset(sql: str, charset: str) -> None:
    """In a multi-byte character set other than UTF-8 a byte of a character may look like a quote or
    a backslash; of bytes that ASCII does not have each server makes something else."""
    reads_as_ascii = is_utf8(charset) or (charset != "" and contains_ascii(charset))
    if not reads_as_ascii or not (
        sql.isascii() or is_utf8(charset) or (is_single_byte(charset) and charset != "ascii")
    ):
        raise Unreadable(f"the character set {charset or '(unknown)'}")


@cache
def _scanner(ansi: bool, escapes: bool) -> re.Pattern[str]:
    """Possessive throughout: time and memory grow with the text's length and no faster."""
    single = r"(?:[^'\\]++|''|\\.)*+" if escapes else r"(?:[^']++|'')*+"
    double = r'(?:[^"\\]++|""|\\.)*+' if escapes and not ansi else r'(?:[^"]++|"")*+'
    quoted = (
        rf"`(?P<backtick>(?:[^`]++|``)*+)`|(?P<prefix>[xXbBnN](?='))?+'(?P<single>{single})'|\"(?P<double>{double})\""
    )
    return re.compile(f"{_SPACE}|{_COMMENTS}|{quoted}|{_NUMBERS}|{_REST}", re.S | re.A)


class _Scan:
    """One pass over the text."""

    def __init__(self, sql: str, session: Session, mode: int) -> None:
        self._sql, self._session = sql, session
        self._ansi, self._escapes = bool(mode & ANSI_QUOTES), not mode & NO_BACKSLASH_ESCAPES
        self._at = 0
        #: inside of a conditional comment that is code
        self._in_comment = False
        #: what ends here is a name, so that a dot and a digit continue it
        self._named = False

    def tokens(self) -> Iterator[Token]:
        scanner = _scanner(self._ansi, self._escapes)
        while self._at < len(self._sql):
            if self._named and (match := _AFTER_DOT.match(self._sql, self._at + 1)) and self._sql[self._at] == ".":
                self._at = match.end()
                yield Token(TokenKind.SYMBOL, ".")
                yield self._word(match[0])
                continue
            match = scanner.match(self._sql, self._at)
            if match is None:
                raise Unreadable(f"at {self._sql[self._at : self._at + 20]!r}")
            self._at = match.end()
            yield from self._matched(match, match.lastgroup or "")
        if self._in_comment:
            raise Unreadable("a comment without its end")

    def _matched(self, match: re.Match[str], kind: str) -> Iterator[Token]:
        text = match[kind]
        quoted = kind == "backtick" or (kind == "double" and self._ansi)
        self._named = quoted or kind == "word"
        if self._named and NOT_DECODED in text:
            raise Unreadable(f"a name that could not be decoded: {text[:20]!r}")
        if quoted:
            yield Token(TokenKind.NAME, text.replace(match[0][0] * 2, match[0][0]))
        elif kind in ("single", "double"):
            yield self._string(match, text)
        elif kind == "word":
            if _DOUBTFUL.match(text):
                raise Unreadable(f"a name that begins like a number or a dollar quote: {text[:20]!r}")
            yield self._word(text)
        elif kind in _PLAIN:
            yield Token(_PLAIN[kind], text)
        elif kind != "space":
            self._comment(kind, mariadb_only="M" in text)

    def _word(self, text: str) -> Token:
        if not text.isascii() and not is_utf8(self._session.charset):
            raise Unreadable("a name without quotes in another character set than UTF-8")
        return Token(TokenKind.WORD, text)

    def _string(self, match: re.Match[str], text: str) -> Token:
        if match["prefix"]:
            return Token(TokenKind.LITERAL, match[0])
        quote = match[0][-1]
        if self._escapes:
            escaped = re.compile(rf"\\(.)|{quote}{quote}", re.S)
            return Token(TokenKind.STRING, escaped.sub(lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else quote, text))
        return Token(TokenKind.STRING, text.replace(quote * 2, quote))

    def _comment(self, kind: str, mariadb_only: bool) -> None:
        if kind == "close":
            if not self._in_comment:
                raise Unreadable("the end of a comment that has not begun")
            self._in_comment = False
            return
        if self._in_comment:
            raise Unreadable("a comment in a comment")
        if kind == "comment" or (mariadb_only and not self._session.mariadb):
            self._skip_comment()
        elif self._is_code(mariadb_only):
            self._in_comment = True
        elif "/*" in self._skip_comment():
            raise Unreadable("a comment in a comment")

    def _skip_comment(self) -> str:
        end = self._sql.find("*/", self._at)
        if end < 0:
            raise Unreadable("a comment without its end")
        skipped, self._at = self._sql[self._at : end], end + 2
        return skipped

    def _is_code(self, mariadb_only: bool) -> bool:
        """Whether the server executes the conditional comment that begins here; moves past its
        version."""
        version = _VERSION.match(self._sql, self._at)
        if version is None:
            if self._sql[self._at : self._at + 1].isdigit():
                raise Unreadable("a comment for a version of another form than 50001 or 100001")
            return True
        self._at = version.end()
        least, server = int(version[0]), self._session.version
        if least <= ALWAYS_CODE:
            return True
        if self._session.mariadb and not mariadb_only and least in NEVER_ON_MARIADB:
            return False
        if not server:
            raise Unreadable("a comment for some versions, where the server's is unknown")
        return least <= server


_PLAIN = {"number": TokenKind.NUMBER, "literal": TokenKind.LITERAL, "symbol": TokenKind.SYMBOL}
