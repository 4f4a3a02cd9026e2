"""Dependency trees: parses, Tree-LSTM, the twin network."""
