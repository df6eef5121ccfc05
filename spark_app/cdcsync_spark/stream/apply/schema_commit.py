"""A step of a table's definition as one commit: the schema, what becomes of the rows, and the state
with the next definition and a position that includes the statement.

Why it is right: the commit depends on the state that is found and on the statement alone. A run
that died before it makes the same one again; one that died after it finds the statement covered by
the position. What the first rows after it must still prove is in the state, too, so that a later
run asks them.
"""

from __future__ import annotations

from dataclasses import replace

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import Position
from cdcsync_core.state import LastChange, TableState
from cdcsync_core.tables.evolve import NotCopied, evolve, rewrites
from cdcsync_core.tables.schema_change import Emptied, Filled, Followed, Kept
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.binlog.schema.steps import FollowPolicy, SchemaStep, meaning, not_followed, repeatable
from cdcsync_spark.binlog.schema.stop_reasons import shown
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Change, Commit, Empty, Evolve
from cdcsync_spark.wire.binlog.predicted_map import shown_by_rows, unseen_by_rows
from cdcsync_spark.wire.sql.changes.statement import may_define
from cdcsync_spark.wire.sql.column.catalog_default import predicted_default


def step_commit(
    state: TableState, step: SchemaStep, upto: Position, policy: FollowPolicy, *, consistent: bool
) -> Commit | None:
    """None where the target has it. `consistent`: no row that a snapshot read may be younger than
    the statement. Raises CdcError for what is not followed."""
    assert state.position is not None
    if state.position.covers(step.transaction):
        return None
    change_of_source = meaning(state.capture, step.statement, policy)
    if isinstance(change_of_source, CdcError):
        raise change_of_source
    if state.undescribed and not consistent and _may_define(step, state):
        why = "the table was read meanwhile, and the rows before it do not name their columns"
        raise not_followed(why, step.statement, state.capture.id)
    gtid = step.transaction.numbered
    after = state.after_batch(upto, changing=GtidSet().with_gtids([gtid] if gtid else []))
    if change_of_source is None:
        return Commit(replace(after, change=_not_named(state.change, step)), AdvancePosition())
    try:
        schema, change = target_change(state.schema, change_of_source, policy, published=state.published)
    except NotCopied as e:
        raise not_followed(str(e), step.statement, state.capture.id) from None
    if not (consistent or repeatable(change_of_source)):
        why = "it moves values between columns, and the snapshot may have rows from after it"
        raise not_followed(why, step.statement, state.capture.id)
    return Commit(
        replace(after, capture=change_of_source.after, schema=schema, change=_noted(state, change_of_source, step)),
        change,
    )


def _may_define(step: SchemaStep, state: TableState) -> bool:
    """Whether rows before the statement may be of another definition than the one recorded, which
    the catalog may have had after it only."""
    return may_define(step.statement, state.capture)


def target_change(
    schema: TargetSchema, followed: Followed | Emptied, policy: FollowPolicy, *, published: bool
) -> tuple[TargetSchema, Change]:
    """The next schema of a target that has `schema`, and the change that makes it. A target that
    appends only takes all changes until its snapshot is `published`. Raises `NotCopied`."""
    fixed = policy.append_only and published
    if isinstance(followed, Emptied):
        if fixed:
            raise NotCopied("rows that are published go without an event of their own")
        return schema, Empty()
    after, origins = evolve(schema, followed, policy.dropped)
    if fixed and rewrites(schema, after, origins):
        raise NotCopied("it gives other values or names to rows that are published")
    same = after == schema and origins == tuple(Kept(c.name) for c in after.columns)
    return after, AdvancePosition() if same else Evolve(origins)


def _noted(state: TableState, followed: Followed | Emptied, step: SchemaStep) -> LastChange:
    """Versions count the definitions of the content. Whatever was predicted has to be proved by
    rows, in what they carry, and by the catalog; after a TRUNCATE the catalog alone is asked."""
    changed, last = followed.after != state.capture, _not_named(state.change, step) or LastChange()
    alteration = followed if isinstance(followed, Followed) else None
    return LastChange(
        last.version + changed,
        step.committed_at,
        shown(step.statement),
        followed.kind,
        alteration is not None or last.unproved,
        True,
        last.defaults + (_defaults(alteration, step) if alteration else ()),
        alteration is not None and shown_by_rows(alteration),
        tuple(dict.fromkeys(last.unseen + (unseen_by_rows(alteration) if alteration else ()))),
    )


def _not_named(last: LastChange | None, step: SchemaStep) -> LastChange | None:
    """Takes out the defaults that the statement may have changed: what the catalog shows is the
    newest. In doubt it has."""
    if last is None or not last.defaults:
        return last
    text = step.statement.sql.upper()
    return replace(last, defaults=tuple(d for d in last.defaults if d[0].isascii() and d[0].upper() not in text))


def _defaults(followed: Followed, step: SchemaStep) -> tuple[tuple[str, str], ...]:
    """The defaults of the columns that the statement adds."""
    return tuple(
        (column.name, predicted_default(column, origin.value, step.statement.session))
        for column, origin in zip(followed.after.columns, followed.origins, strict=True)
        if isinstance(origin, Filled)
    )
