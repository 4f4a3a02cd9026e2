"""Systems beyond plain retrieval. Each has a folder with all code that no other system needs.

To delete a system: delete its folder, its tests and its line here.
"""

#: Modules that declare the systems of this package, see `vsemb.registry.System`.
SYSTEMS = (
    "vsemb.systems.presets",
    "vsemb.systems.trees",
    "vsemb.systems.regions",
    "vsemb.systems.captions",
    "vsemb.systems.language",
    "vsemb.systems.zero_shot",
    "vsemb.systems.entailment",
    "vsemb.systems.benchmarks",
    "vsemb.systems.hyperbolic",
    "vsemb.systems.probabilistic",
)
