"""Numbers of examples: few and the same ones in each run, or as many as `VSEMB_FUZZ` says, drawn anew."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = int(os.environ.get("VSEMB_FUZZ", "0"))

settings.register_profile(
    "vsemb",
    max_examples=_EXAMPLES or 10,
    derandomize=not _EXAMPLES,
    database=None,
    # The machine may be busy; the tests count CPU seconds.
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("vsemb")
