"""The rights that the brokers must give to the account of a sync. Pure.

What `check` asks for, what an error says is needed and what the manual lists is this table; the
tests grant it, and nothing else. Partitions are assigned and no offset is committed, so no right on
a consumer group is needed. `READ` and `WRITE` include `DESCRIBE`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class On(StrEnum):
    TOPICS = "the topics"
    STATE = "the state topic"
    TRANSACTIONS = "the transactional ids that begin with the state topic's name"
    CLUSTER = "the cluster"


class Right(NamedTuple):
    """`of_runs`: no run works without it; `optional`: something is left out without it."""

    on: On
    operations: tuple[str, ...]
    purpose: str
    of_runs: bool = True
    optional: bool = False


RIGHTS = (
    Right(On.TOPICS, ("CREATE", "WRITE"), "runs"),
    Right(On.TOPICS, ("READ",), "`verify`", of_runs=False),
    Right(On.STATE, ("CREATE", "READ", "WRITE"), "runs; `check` and `verify` only read"),
    Right(On.TRANSACTIONS, ("WRITE",), "runs with `delivery: exactly-once`"),
    Right(
        On.STATE,
        ("DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
        "a run gives the topic its [settings](#topics)",
        of_runs=False,
        optional=True,
    ),
    Right(
        On.CLUSTER,
        ("DESCRIBE_CONFIGS",),
        "`check` knows whether transactions are allowed",
        of_runs=False,
        optional=True,
    ),
)
#: the resource that a broker's refusal is about, beside topics
_REFUSED = {"TRANSACTIONAL_ID": On.TRANSACTIONS, "CLUSTER": On.CLUSTER}
_SUFFIX = "_AUTHORIZATION_FAILED"
#: what all consumers of the library ask for; an assignment goes on without the answer
_UNNEEDED = f"GROUP{_SUFFIX}"


def is_refusal(error: str) -> bool:
    """Whether a right is missing, by the error's name."""
    return error.endswith(_SUFFIX)


def is_unneeded(error: str) -> bool:
    """Whether it refuses what nothing here needs."""
    return error == _UNNEEDED


def granted_for(on: On) -> tuple[str, ...]:
    """The operations that are needed there."""
    return tuple(o for right in RIGHTS if right.on is on and not right.optional for o in right.operations)


def needed_where(error: str) -> str:
    """What a broker that refuses with this error has to grant."""
    on = _REFUSED.get(error.removesuffix(_SUFFIX))
    if on is On.CLUSTER:
        return "CREATE on the topics and the state topic, and IDEMPOTENT_WRITE on the cluster of brokers before 2.8"
    places = (On.TOPICS, On.STATE) if on is None else (on,)
    return "; ".join(f"{_joined(granted_for(place))} on {place}" for place in places)


def _joined(operations: tuple[str, ...]) -> str:
    return f"{', '.join(operations[:-1])} and {operations[-1]}" if len(operations) > 1 else operations[0]


def table() -> str:
    """In Markdown, as the manual has it."""
    rows = [f"| {r.on} | {_quoted(r)} | {r.purpose}{', optional' if r.optional else ''} |" for r in RIGHTS]
    return "\n".join(["| on | operations | for |", "|---|---|---|", *rows])


def _quoted(right: Right) -> str:
    return ", ".join(f"`{operation}`" for operation in right.operations)
