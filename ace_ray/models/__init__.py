"""What to look with: models by name, their weights and preprocessing."""
