"""geartrain: train tool-using language-model agents, and keep them trained."""

__version__ = "0.1.0"
