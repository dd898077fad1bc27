"""Finite dimension: data, GAMP, and what an estimate and the truth have in common."""
