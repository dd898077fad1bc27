"""Averages over any density with a Gaussian part: lattices, sampling, roots.  Knows no physics."""
