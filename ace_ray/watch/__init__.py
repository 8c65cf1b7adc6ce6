"""Scheduled re-benchmarking: what is new, what became worse, and the page of all models."""
