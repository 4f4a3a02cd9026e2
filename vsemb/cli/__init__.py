"""The `vsemb` command: one file per command, without logic of its own."""
