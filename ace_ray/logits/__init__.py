"""Look: Ray Data runs every model over every split and commits Parquet logit tables."""
