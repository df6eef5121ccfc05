"""What is used of Kopf beyond its public names (docs/decisions/watched-namespaces.md)."""

from __future__ import annotations

import asyncio
import inspect

import kopf
from kopf._cogs.structs import references

from cdcsync_operator.cluster.handlers import _watch_these


def test_kopf_takes_the_set_of_namespaces_and_waits_for_its_changes() -> None:
    """Where this fails after an upgrade, no namespace of a selector would be watched."""
    assert "insights" in inspect.signature(kopf.operator).parameters
    insights = references.Insights()
    assert (insights.namespaces, type(insights.revised)) == (set(), asyncio.Condition)

    async def revised() -> None:
        async with insights.revised:
            changed = asyncio.ensure_future(_watch_these(insights, frozenset(("shop", "lake"))))
            await insights.revised.wait()
        await changed

    asyncio.run(asyncio.wait_for(revised(), 60))
    assert insights.namespaces == {"shop", "lake"}
