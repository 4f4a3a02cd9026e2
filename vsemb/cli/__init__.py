"""The `vsemb` command: one file per subcommand, without further logic."""
