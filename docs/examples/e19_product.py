"""
z1 z2: two directions, learned together
=======================================

The output is the product of two fields. Exchanging them changes nothing, so that both are learned at once, and
equally well.
"""
# Rows: z1 z2

import matplotlib.pyplot as plt
import numpy as np

import smisym

model = smisym.compile(smisym.SMI("z1*z2", 2))
(weak,) = smisym.weak_recovery(model).value
print(weak.names, f"{weak.alpha:.5f} ± {weak.error:.0e} (19/32 = {19 / 32:.5f})")

# %%
# What one output leaves possible: the hyperbola ``z1 z2 = y``. The chart of the model is coordinates on it.

omap = smisym.overlap_map(model, samples=256)
alphas = np.linspace(0.5, 1.1, 4)
points = smisym.curve(omap, alphas)
Q = np.array([np.diag(point.value.Q) for point in points])

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
z = np.linspace(0.05, 3, 200)
for y, colour in ((0.3, "C0"), (1.0, "C1")):
    for sign in (1, -1):
        left.plot(sign * z, sign * y / z, color=colour, label=f"y = {y}" if sign == 1 else None)
left.set(xlabel="z1", ylabel="z2", xlim=(-3, 3), ylim=(-3, 3), aspect="equal", title="two level sets")
left.legend()
right.axvline(weak.alpha, color="0.7", linestyle=":")
right.plot(alphas, Q[:, 0], "o-", label="z1")
right.plot(alphas, Q[:, 1], "+--", markersize=10, label="z2")
right.set(xlabel="samples per dimension, N / D", ylabel="Q", ylim=(-0.02, 1.05), title="overlaps")
right.legend()
plt.show()
