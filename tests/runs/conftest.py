"""Runs of systems that what opens any run is tried with."""

from tests.systems.entailment.conftest import snli_path, tiny_entailment_run  # noqa: F401
