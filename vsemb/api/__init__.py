"""The public API: the names of `import vsemb`, loaded on first use."""
