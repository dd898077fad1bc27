"""How layers are learned, step by step: by state evolution, by GAMP, and by descent on the same data."""
