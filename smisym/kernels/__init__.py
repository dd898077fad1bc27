"""Straight-line programs, what they call by name, and what compiles them: numpy, numba, JAX."""
