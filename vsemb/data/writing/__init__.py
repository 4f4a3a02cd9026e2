"""Writing datasets: shards, staging, validation."""
