"""
A committee: many layers for the price of one
=============================================

Many layers, each with a small readout, act like a committee: only the sum of their attention matrices reaches the
output. ``statistic="gaussian"`` takes that sum for Gaussian, so that the cost does not grow with the number of
layers.

The last layer is learned first. Of more layers before it, one sees less.
"""
# Rows: committee of 8 layers and a last one, through its sum, T = 2

import matplotlib.pyplot as plt

import smisym
from smisym import Architecture, Attention

counts = [2, 3, 4, 6]
found = []
for n in counts:
    layers = (*[Attention(readout=1 / n)] * n, Attention())
    model = smisym.compile(Architecture(2, layers, limit="first_order", statistic="gaussian"))
    first = smisym.weak_recovery(model, stages=1).value[0]
    found.append(first.alpha)
    print(f"{n:2d} layers: {model.channel.free_dimensions} free dimensions, {first.names[0]} from {first.alpha:.5f} on")

# %%
# With more and more layers the sum no longer fluctuates, and what is left is a single layer: 1/6.

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.axhline(1 / 6, color="0.7", label="a single layer, 1/6")
axes.plot(counts, found, "o-", label="last layer of the committee")
axes.set(xscale="log", xlabel="layers in the committee", ylabel="first threshold, N / D", xticks=counts)
axes.set_xticklabels(counts)
axes.minorticks_off()
axes.legend()
plt.show()
