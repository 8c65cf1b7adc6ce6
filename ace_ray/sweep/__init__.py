"""Try: Ray Tune sweeps calibrator x difficulty x seed and leaves one record per trial."""
