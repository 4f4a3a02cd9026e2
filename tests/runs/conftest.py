"""Data of systems that trainings on two devices are tried with, where these systems are there."""

import contextlib

with contextlib.suppress(ImportError):
    from tests.systems.entailment.conftest import snli_path  # noqa: F401
