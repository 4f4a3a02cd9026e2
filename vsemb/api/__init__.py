"""The public API: what `import vsemb` offers, loaded when it is first used."""
