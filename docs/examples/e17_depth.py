"""
Depth: one more layer, a little later
=====================================

The last layer is always the first to be learned. Each layer below it scrambles its tokens a little more, and so it
takes more samples to begin.
"""
# Rows: three layers, T = 2

import matplotlib.pyplot as plt

import smisym
from smisym import Architecture, Attention

depths = [1, 2, 3]
found = []
for depth in depths:
    model = smisym.compile(Architecture(2, (Attention(),) * depth))
    first = smisym.weak_recovery(model, stages=1).value[0]
    found.append(first.alpha)
    print(f"{depth} layers: {first.names[0]} from {first.alpha:.6f} ± {first.error:.0e} on")

# %%
# Four layers give 0.2284(2); that takes minutes, and is in the table of architectures.

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(depths, found, "o-")
axes.set(xlabel="layers", ylabel="first threshold, N / D", xticks=depths, ylim=(0.15, 0.22))
plt.show()
