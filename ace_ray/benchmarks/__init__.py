"""What to look at: benchmarks, their splits and the corruption family."""
