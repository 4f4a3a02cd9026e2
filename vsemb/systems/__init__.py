"""Systems beyond plain retrieval, each in a folder that holds all that only it needs.

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
    "vsemb.systems.hypernymy",
    "vsemb.systems.benchmarks",
)
