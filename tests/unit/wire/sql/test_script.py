"""A script is cut into statements where the command line client cuts it."""

from __future__ import annotations

import pytest

from cdcsync_spark.wire.sql.syntax.script import statements

SCRIPT = """-- V7: orders; not a statement
# neither; this
/* nor; this */
USE `sh``op`;
ALTER TABLE orders ADD note VARCHAR(20) DEFAULT 'a;b\\';c'; /*!50001 ALTER TABLE t ADD x INT */;
DELIMITER //
CREATE TRIGGER x BEFORE INSERT ON orders FOR EACH ROW BEGIN SET @a = 1; SET @b = 2; END //
delimiter ;

use other;
ALTER TABLE "a;b" -- why; because
  ADD `c;d` INT /* e;f */
"""


def test_a_script_is_cut_at_its_delimiters() -> None:
    assert list(statements(SCRIPT)) == [
        (5, "sh`op", r"ALTER TABLE orders ADD note VARCHAR(20) DEFAULT 'a;b\';c'"),
        (5, "sh`op", "/*!50001 ALTER TABLE t ADD x INT */"),
        (
            7,
            "sh`op",
            "CREATE TRIGGER x BEFORE INSERT ON orders FOR EACH ROW BEGIN SET @a = 1; SET @b = 2; END",
        ),
        (11, "other", 'ALTER TABLE "a;b" -- why; because\n  ADD `c;d` INT /* e;f */'),
    ]


def test_a_backslash_is_a_character_without_escapes() -> None:
    text = r"ALTER TABLE t ADD a CHAR(1) DEFAULT '\'; DROP TABLE t"
    assert [s.sql for s in statements(text)] == [text]
    assert [s.sql for s in statements(text, escapes=False)] == [text.split("; ", maxsplit=1)[0], "DROP TABLE t"]


@pytest.mark.parametrize("rest", ["ADD a CHAR(1) DEFAULT 'x; DROP TABLE t", "/* x; DROP TABLE t", "ADD `a; INT"])
def test_what_has_no_end_takes_the_rest(rest: str) -> None:
    assert [s.sql for s in statements(f"ALTER TABLE t {rest}")] == [f"ALTER TABLE t {rest}"]


@pytest.mark.parametrize("script", ["", " \n;; -- x\n;", "/* a */", "USE a", "DELIMITER $$"])
def test_a_script_without_statements_has_none(script: str) -> None:
    assert list(statements(script)) == []


def test_time_grows_with_the_script_alone() -> None:
    """A regular expression that went back over quotes would take hours."""
    assert len(list(statements("ALTER TABLE t ADD a CHAR(1) DEFAULT 'x\\'y''z';\n" * 20_000))) == 20_000
    assert len(list(statements("'" + "\\'" * 500_000))) == 1
