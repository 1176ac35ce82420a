"""What holds for the whole suite: hypothesis repeats itself exactly and is not timed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("llamita", derandomize=True, deadline=None)
settings.load_profile("llamita")
