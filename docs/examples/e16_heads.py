"""
Two heads: shared or split
==========================

Two heads can share the whole embedding, or each have half of it. Split heads have fewer unknowns each, so that the
same data say twice as much about them.
"""
# Rows: two heads, shared, stacked, T = 2; two heads, split, stacked, T = 2

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
for layout, style in (("shared", "o-"), ("split", "s-")):
    model = smisym.compile(Architecture(2, (Attention(heads=2),), head_layout=layout))
    (first,) = smisym.weak_recovery(model).value
    print(f"{layout}: {first.names} from {first.alpha:.4f} on")
    points = smisym.curve(smisym.overlap_map(model, samples=1024), np.linspace(0.05, 0.55, 6))
    alphas = [point.value.alpha for point in points]
    axes.plot(alphas, [point.value.Q[0, 0] for point in points], style, label=f"{layout} heads")
axes.set(xlabel="samples per dimension, N / D", ylabel="Q of a head", ylim=(-0.02, 1.05))
axes.legend()
plt.show()
