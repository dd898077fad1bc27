"""
Two layers: the last one first
==============================

A network of two layers is learned from its end. The second layer begins at 0.185. The first one waits until the second
is nearly known, at 0.72.
"""
# Rows: two layers, T = 2

import matplotlib.pyplot as plt

import smisym
from smisym import Architecture, Attention

model = smisym.compile(Architecture(2, (Attention(), Attention(skip=1.0))))
(first,) = smisym.weak_recovery(model, stages=1).value
print(first.names, f"{first.alpha:.6f} ± {first.error:.0e}")

# %%
# Four alphas, with few samples; the bands show it.

omap = smisym.overlap_map(model, samples=1024)
points = smisym.curve(omap, [0.1, 0.4, 0.55, 0.85])
print([point.result.value for point in points])
figure = smisym.curve_figure(points, [first], labels=model.labels)
plt.figure(figure)
plt.show()

# %%
# The second threshold takes an evaluation of the map more, ``smisym.weak_recovery(omap)``; the picture on the
# :doc:`first page </index>` has all of it.
