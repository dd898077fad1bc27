"""
Untied: queries are easier than keys
====================================

With weights of their own, queries and keys are two rows. They begin to be learned together, at ``sqrt(5) - 2``.
Then queries lead: on two tokens the output depends on both entries of the queries, and only on the difference of
the keys.
"""
# Rows: untied, rank 1, T = 2

import matplotlib.pyplot as plt
import numpy as np

import smisym

model = smisym.compile(smisym.Architecture(2, (smisym.Attention(tied=False),)))
(weak,) = smisym.weak_recovery(model).value
print(weak.names, f"{weak.alpha:.4f}, sqrt(5) - 2 = {5**0.5 - 2:.4f}")

# %%
# :func:`smisym.curve_figure` draws what a curve returned, with its error bands and thresholds.

omap = smisym.overlap_map(model, samples=1024)
points = smisym.curve(omap, np.linspace(0.1, 0.7, 7))
figure = smisym.curve_figure(points, [weak], labels=model.labels)

# %%
# It is a figure of its own, not one of pyplot; a line shows it here.

plt.figure(figure)
plt.show()
