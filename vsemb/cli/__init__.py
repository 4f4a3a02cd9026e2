"""The `vsemb` command: a parser for each act, and what surrounds its call. It has no logic of its own."""
