"""From a declaration to its link function: a program of few kinds of steps, its ranks and its symmetries."""
