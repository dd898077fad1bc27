"""What every room may use: errors, results, derivation steps, checks of what a caller hands over, atomic files."""
