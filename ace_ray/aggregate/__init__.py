"""Decide: one actor turns committed records into results and tables with significance."""
