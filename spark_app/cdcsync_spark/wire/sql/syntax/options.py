"""Options of a table that leave its rows and columns as they are."""

from __future__ import annotations

from collections.abc import Sequence

from cdcsync_spark.wire.sql.syntax.reader import TokenReader, unnested, words
from cdcsync_spark.wire.sql.syntax.tokens import Token, TokenKind

_ANY = (TokenKind.NUMBER, TokenKind.WORD, TokenKind.STRING)


def table_options(reader: TokenReader) -> bool:
    """Reads as many as there are, with or without commas; whether there was one."""
    listed = False
    while _option(reader):
        listed = True
        reader.take(",")
    return listed


def names_charset(clause: Sequence[Token]) -> bool:
    """Whether options of the table, or CONVERT, say a character set. Definitions of columns do in
    their own right."""
    outside = unnested(clause)
    head = outside[0].text.upper() if outside else ""
    of_column = head in ("ADD", "MODIFY", "CHANGE", "ALTER", "DROP", "RENAME")
    return not of_column and any(
        t.kind is TokenKind.WORD and t.text.upper() in ("CHARSET", "CHARACTER", "COLLATE") for t in outside
    )


def _option(reader: TokenReader) -> bool:
    if reader.take_any(*_CHARSETS):
        reader.take("=")
        reader.of(TokenKind.WORD, TokenKind.NAME, TokenKind.STRING)
    elif reader.take("ENGINE"):
        reader.take("=")
        if reader.of(TokenKind.WORD, TokenKind.NAME, TokenKind.STRING).lower() != "innodb":
            raise reader.unexpected()
    elif option := reader.take_any(*_VALUES):
        reader.take("=")
        reader.of(*_VALUES[option])
    else:
        return False
    return True


_CHARSETS = ("DEFAULT CHARACTER SET", "DEFAULT CHARSET", "DEFAULT COLLATE", "CHARACTER SET", "CHARSET", "COLLATE")
_VALUES: dict[str, tuple[TokenKind, ...]] = {
    "COMMENT": (TokenKind.STRING,),
    "COMPRESSION": (TokenKind.STRING,),
    "ENCRYPTION": (TokenKind.STRING,),
    "AUTO_INCREMENT": (TokenKind.NUMBER,),
    "ROW_FORMAT": (TokenKind.WORD,),
    "ALGORITHM": (TokenKind.WORD,),
    "LOCK": (TokenKind.WORD,),
    **dict.fromkeys(
        words(
            "AVG_ROW_LENGTH CHECKSUM DELAY_KEY_WRITE KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM"
            " STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES AUTOEXTEND_SIZE PAGE_COMPRESSED"
            " PAGE_COMPRESSION_LEVEL ENCRYPTED ENCRYPTION_KEY_ID"
        ),
        _ANY,
    ),
}
#: the words that begin an option
OPTIONS = frozenset({"ENGINE", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE", *_VALUES})
