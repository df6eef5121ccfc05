"""Whether a generated column has one value for one row, in every session.

A SELECT computes a VIRTUAL column in the session of its reader, the binlog has it as the session of
the writer did, and a rebuild of the table computes a STORED one in its own session.

Why it is right: an expression is read to its last token, and each word of it must be one of
`_WORDS`, which sessions of other time zones, sql_modes, languages, character sets and precisions
compute alike (`tests/servers/test_generated_columns.py` asks them). Of the columns that it names,
those whose reading depends on the session may only be asked whether they are NULL. What is left
out has no proof: a division has as many digits as div_precision_increment says, DATE_FORMAT the
names of lc_time_names, a TIME gets the date of today, a CHAR its spaces by PAD_CHAR_TO_FULL_LENGTH,
and WEEK begins with the day of default_week_format.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cdcsync_core.tables.source_table import Column

_TOKENS = re.compile(
    r"\s+|(?P<column>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|''|\\.)*')|(?P<number>\d[\d.]*(?:e[+-]?\d+)?)"
    r"|(?P<word>[a-z_]\w*)|(?P<symbol>[-+*/%=<>!&|^~(),])",
    re.S | re.I,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS = _words(
    "and or not xor is null true false in between div mod case when then else end if ifnull nullif coalesce isnull"
    " greatest least abs sign floor ceiling ceil round truncate pow power sqrt bit_count conv crc32"
    " concat concat_ws lower lcase upper ucase substr substring left right trim both leading trailing from ltrim rtrim"
    " length octet_length char_length character_length replace reverse substring_index locate instr position lpad rpad"
    " strcmp field elt ascii ord hex unhex md5 sha sha1 sha2 to_base64 from_base64 inet_aton inet_ntoa inet6_aton"
    " inet6_ntoa uuid_to_bin bin_to_uuid json_unquote json_extract json_value json_length json_contains json_type"
    " json_object json_valid json_array json_keys json_quote returning"
    " cast as char charset character set binary signed unsigned decimal double json convert using collate"
)
#: what makes a date of something, or something of a date
_DATES = _words(
    "date datetime year month day dayofmonth dayofyear dayofweek weekday quarter hour minute second microsecond last_day"
    " to_days datediff extract year_month yearweek interval timestampdiff"
)
#: behind them stands a name that is no function
_NAMED = frozenset({"collate", "charset", "set", "using"})
_TEMPORAL = frozenset({"date", "datetime"})
#: types whose reading depends on the session
_READ_BY_SESSION = frozenset({"timestamp", "time", "char"})


@dataclass(frozen=True)
class Generated:
    """A generated column, with its expression as the catalog shows it."""

    column: Column
    expression: str
    stored: bool


def unproved(generated: Mapping[str, Generated], columns: Mapping[str, Column]) -> dict[str, str]:
    """Returns, by name, why generated columns may have two values for one row; a column that is
    computed from such a one may, too."""
    reasons: dict[str, str] = {}
    for _ in generated:
        plain = {name: column for name, column in columns.items() if name not in reasons}
        more = {name: why for name, g in generated.items() if name not in reasons and (why := _reason(g, plain))}
        if not more:
            break
        reasons |= more
    return reasons


def _reason(generated: Generated, columns: Mapping[str, Column]) -> str:
    tokens = _tokens(generated.expression)
    if tokens is None:
        return "its expression has more than columns, literals and known operators"
    if ("symbol", "/") in tokens:
        return "it divides by /, whose digits are div_precision_increment"
    words = [text for kind, text in tokens if kind == "word"]
    strange = next((w for before, w in zip(["", *words], words, strict=False) if not _is_proved(before, w)), "")
    if strange:
        return f"it uses {strange}"
    places = [i for i, (kind, _) in enumerate(tokens) if kind == "column" and not _is_null_test(tokens, i)]
    names = {i: _name(tokens[i][1]) for i in places}
    unknown = next((name for name in names.values() if name not in columns), "")
    if unknown:
        return f"it is computed from {unknown}"
    used = [columns[name] for i, name in names.items() if not _takes_date(tokens, i, columns[name])]
    return _of_types(generated, used, tokens)


def _tokens(expression: str) -> list[tuple[str, str]] | None:
    """Kinds and texts, words in lower case; None if something else is in it. MySQL shows quotes
    and backslashes with a backslash before them."""
    for text in (expression, re.sub(r"\\(.)", r"\1", expression, flags=re.S)):
        at, tokens = 0, []
        while match := _TOKENS.match(text, at):
            at = match.end()
            if match.lastgroup:
                token = match[0].lower() if match.lastgroup == "word" else match[0]
                tokens.append((match.lastgroup, token))
        if at == len(text):
            return tokens
    return None


def _is_proved(before: str, word: str) -> bool:
    """A word behind the word `before`; `_utf8mb4` introduces a literal."""
    return word in _WORDS or word in _DATES or before in _NAMED or re.fullmatch(r"_[a-z]+\d*\w*", word) is not None


def _name(quoted: str) -> str:
    return quoted[1:-1].replace("``", "`")


def _is_null_test(tokens: list[tuple[str, str]], at: int) -> bool:
    behind = [text for _, text in tokens[at + 1 : at + 4]]
    return behind[:2] == ["is", "null"] or behind == ["is", "not", "null"]


def _takes_date(tokens: list[tuple[str, str]], at: int, column: Column) -> bool:
    """CAST(column AS DATE), which rounds no digits; DATE(column) is shown so."""
    around = [text for _, text in (*tokens[max(0, at - 2) : at], *tokens[at + 1 : at + 4])]
    return column.type.base == "datetime" and around == ["cast", "(", "as", "date", ")"]


def _of_types(generated: Generated, used: list[Column], tokens: list[tuple[str, str]]) -> str:
    own = generated.column.type
    if own.base in ("timestamp", "time"):
        return f"it is a {own.base.upper()}"
    strange = next((c for c in used if c.type.base in _READ_BY_SESSION), None)
    if strange is not None:
        return f"it is computed from {strange.name}, a {strange.type.base.upper()}"
    words = {text for kind, text in tokens if kind == "word"}
    dates = [c for c in used if c.type.base in _TEMPORAL]
    if not (dates or words & _DATES or own.base in _TEMPORAL):
        return ""
    if len(dates) < len(used) or not all(_is_date(text) for kind, text in tokens if kind == "text"):
        return "it makes a date of a text or a number"
    digits = max((c.type.size for c in dates), default=0)
    cut = "datetime" in words or (own.base in _TEMPORAL and own.size < digits)
    return "it cuts digits of a second" if digits > 0 and cut else ""


def _is_date(literal: str) -> bool:
    """One that every sql_mode takes; a text without a digit is none."""
    try:
        dt.datetime.fromisoformat(literal[1:-1])
    except ValueError:
        return not re.search(r"\d", literal)
    return True
