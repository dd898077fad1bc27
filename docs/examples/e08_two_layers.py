"""
Two layers: the last one first
==============================

A network of two layers is learned from its end. The second layer begins at 0.185. The first one waits until the
second is nearly known.
"""
# Rows: two layers, T = 2

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention

model = smisym.compile(Architecture(2, (Attention(), Attention(skip=1.0))))
omap = smisym.overlap_map(model, samples=256)
thresholds = smisym.weak_recovery(omap).value
for threshold in thresholds:
    print(threshold.names, f"{threshold.alpha:.4f} ± {threshold.error:.4f}")

# %%
# The curve takes few samples here; the bands show it.

points = smisym.curve(omap, np.linspace(0.1, 0.9, 9))
figure = smisym.curve_figure(points, thresholds, labels=model.labels)
plt.figure(figure)
plt.show()
