"""Laws are checked on many examples; how long one takes says nothing on a shared machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("laws", deadline=None, max_examples=200)
settings.load_profile("laws")
