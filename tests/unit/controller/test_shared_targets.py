"""Two tables whose names become one in the target: the newcomer is refused with the reason, and the
one that streams goes on, also after a restart."""

from __future__ import annotations

from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.runs.run import RunKind
from cdcsync_operator.decision.tables.shared_targets import meeting_tables, shared_targets
from unit.controller.flows import entry, look_again
from unit.controller.harness import ControllerHarness, resource

KAFKA = {"kafka": {"bootstrapServers": "127.0.0.1:1", "staging": {"path": "s3://lake/staging"}}}


def test_a_newcomer_is_unassigned_and_the_stream_goes_on() -> None:
    harness = ControllerHarness(resource=resource(sink=KAFKA))
    harness.tables = ("shop.a?b", "shop.c")
    harness.to_streaming()
    stream = harness.live(RunKind.STREAM).id
    look_again(harness, tables=("shop.a b", "shop.a?b", "shop.c"))
    assert (entry(harness, "shop.a b").phase, entry(harness, "shop.a b").reason) == ("Unassigned", "SpecInvalid")
    assert "the topic n.shop.a_b is that of shop.a?b, too" in entry(harness, "shop.a b").message
    assert entry(harness, "shop.a?b").phase == "Streaming"
    assert harness.live(RunKind.STREAM).id == stream
    assert harness.condition("Ready") == ("True", "Streaming")


def test_tables_that_are_asked_for_together_are_taken_on_but_for_the_later_ones() -> None:
    harness = ControllerHarness(resource=resource(sink=KAFKA))
    harness.tables = ("shop.a b", "shop.a?b", "shop.c")
    harness.steps()
    harness.read("shop.a b", "shop.c")
    harness.end(RunKind.SNAPSHOT)
    harness.steps()
    harness.flow("shop.a b", "shop.c")
    harness.steps()
    assert (entry(harness, "shop.a?b").phase, entry(harness, "shop.a?b").reason) == ("Failed", "SpecInvalid")
    assert entry(harness, "shop.a b").phase == "Streaming"


def test_targets_meet_by_the_template_alone() -> None:
    sink = SinkSpec.model_validate(KAFKA)
    names = ["shop.a b", "shop.a?b", "shop.a_b", "shop.c"]
    assert meeting_tables(sink, names) == {"shop.a b", "shop.a?b", "shop.a_b"}
    assert set(shared_targets(sink, {}, names)) == {"shop.a?b", "shop.a_b"}
    assert shared_targets(SinkSpec.model_validate({"delta": {"path": "/lake"}}), {}, names) == {}
