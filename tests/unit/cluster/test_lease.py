"""One operator acts at a time: the lease is taken by the version that was read, kept by renewal,
and given up in time."""

from __future__ import annotations

import copy
from typing import Any

from cdcsync_kube.client import ApiError
from cdcsync_operator.cluster.lease import GIVE_UP, RENEW_EVERY, TERM, TIMEOUT, TRY_AGAIN, Lease


class LeaseServer:
    """One Lease, with versions."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.down = False
        self.answers_lost = 0

    def get(self, path: str) -> dict[str, Any]:
        self._answer()
        if self.lease is None:
            raise ApiError(404, "NotFound", "")
        return copy.deepcopy(self.lease)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._answer()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "")
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = "1"
        return self.lease

    def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._answer()
        assert self.lease
        version = self.lease["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict", "")
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(int(version) + 1)
        if self.answers_lost:  # the client repeats it
            self.answers_lost -= 1
            return self.replace(path, body)
        return self.lease

    def _answer(self) -> None:
        if self.down:
            raise ApiError(0, "", "no answer")


class LeaseClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pair() -> tuple[LeaseServer, LeaseClock, Lease, Lease]:
    server, clock = LeaseServer(), LeaseClock()
    one, two = (Lease(server, "ns", "lock", name, clock) for name in ("one", "two"))  # type: ignore[arg-type]
    return server, clock, one, two


def test_the_first_one_holds_it_and_the_second_one_waits_its_term() -> None:
    _, clock, one, two = pair()
    assert one.attempt()
    assert not two.attempt()
    clock.now += TERM
    assert one.attempt(), "renewed"
    assert not two.attempt(), "it was renewed since it was read"
    clock.now += TERM + 1
    assert two.attempt(), "it was not renewed for a whole term"
    assert not one.attempt()


def test_a_holder_gives_up_before_another_one_may_begin() -> None:
    server, clock, one, two = pair()
    assert one.attempt()
    assert not two.attempt()
    server.down = True
    clock.now += GIVE_UP - 1
    assert one.attempt(), "an API server may restart"
    clock.now += 1
    assert not one.attempt()
    assert GIVE_UP < TERM


def test_an_attempt_without_answers_ends_before_another_one_may_begin() -> None:
    """The last renewal, the pause, and two calls whose kept connections are opened again once."""
    assert RENEW_EVERY + 4 * TIMEOUT < TERM
    assert RENEW_EVERY + 4 * TIMEOUT >= GIVE_UP, "one such attempt is enough to give up"
    server, clock, one, _ = pair()
    assert one.attempt()
    assert one.pause == RENEW_EVERY
    server.down = True
    clock.now += 1
    assert one.attempt()
    assert one.pause == TRY_AGAIN


def test_a_renewal_whose_answer_was_lost_is_our_own() -> None:
    server, _, one, two = pair()
    assert one.attempt()
    server.answers_lost = 1
    assert one.attempt()
    assert not two.attempt()


def test_what_is_released_is_taken_at_once() -> None:
    _, _, one, two = pair()
    assert one.attempt()
    one.release()
    assert two.attempt()


def test_of_two_that_take_it_at_once_one_is_refused() -> None:
    server, _, one, two = pair()
    assert one.attempt()
    one.release()
    stale = server.get("")
    assert two.attempt()
    server_get = server.get
    server.get = lambda path: stale  # type: ignore[method-assign]
    assert not one.attempt()
    server.get = server_get  # type: ignore[method-assign]
    assert two.attempt()


def test_a_lease_goes_with_its_owner() -> None:
    """Also one of before there was an owner, once it is taken over, and one that is created again
    when the owner is gone."""
    server, _, first, second = pair()
    deployment = {"kind": "Deployment", "name": "cdcsync", "uid": "d1"}
    owners = iter((deployment,))
    second.owner = lambda: next(owners, None)
    assert first.attempt()
    assert server.lease
    assert "ownerReferences" not in server.lease["metadata"]
    first.release()
    assert second.attempt()
    assert server.lease["metadata"]["ownerReferences"] == [deployment]
    server.lease = None
    assert second.attempt()
    assert server.lease["metadata"]["ownerReferences"] == [deployment]
