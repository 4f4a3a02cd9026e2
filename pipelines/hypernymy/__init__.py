"""Hypernymy as an order of concept vectors (Vendrov et al. 2016, section 3), for `pipelines.wordnet_hypernymy`."""
