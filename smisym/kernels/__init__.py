"""Straight-line programs, what they call by name, and what compiles them: numpy, and numba where it is installed."""
