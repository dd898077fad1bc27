"""
The skip connection of the first layer
======================================

Of two layers the second is learned first. How soon depends on the skip connection of the first: with a strong one,
tokens reach the second layer unmixed, and it is nearly alone.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention

skips = [0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0]
found = []
for c in skips:
    model = smisym.compile(Architecture(2, (Attention(skip=c), Attention())))
    (first,) = smisym.weak_recovery(model, stages=1).value
    found.append((first.alpha, first.error))
    print(f"skip {c:4.1f}: {first.names[0]} from {first.alpha:.6f} ± {first.error:.0e} on")

# %%
# These thresholds are integrals over the output: they have no random numbers in them.

alpha, error = np.array(found).T
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.axhline(1 / 6, color="0.7", label="a single layer, 1/6")
axes.errorbar(skips, alpha, yerr=error, fmt="o-", label="second of two layers")
axes.set(xscale="log", xlabel="skip of the first layer", ylabel="first threshold, N / D")
axes.legend()
plt.show()
