"""Infinite dimension: the overlap map, its fixed points, thresholds, free entropy and prediction errors."""
