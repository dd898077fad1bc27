"""
The absolute value: from 1/2 on
===============================

The smallest model of all: one field, and the output is its absolute value, ``y = |z|``. Statisticians know it as
real phase retrieval.

Nothing is learned below 1/2. Above, the overlap grows. It arrives at one at 1.128, beyond what is drawn here.
"""
# Rows: |z|

import matplotlib.pyplot as plt
import numpy as np

import smisym

model = smisym.compile(smisym.SMI("abs(z1)", 1))
(weak,) = smisym.weak_recovery(model).value
print(f"learning begins at {weak.alpha:.4f}")

# %%
# One overlap map serves every alpha. A curve asks it again and again.

omap = smisym.overlap_map(model, samples=4096)
alphas = np.linspace(0.4, 1.0, 13)
points = smisym.curve(omap, alphas)
q = np.array([point.value.Q[0, 0] for point in points])
error = np.array([point.value.Q_error[0, 0] for point in points])
print(sum(point.result.ok for point in points), "of", len(points), "points are a success")

# %%
# The band is two standard errors.

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.axvline(weak.alpha, color="0.7", linestyle=":", label="first threshold")
axes.fill_between(alphas, q - 2 * error, np.minimum(q + 2 * error, 1), alpha=0.3)
axes.plot(alphas, q, ".-", label="overlap with the truth")
axes.set(xlabel="samples per dimension, N / D", ylabel="Q", ylim=(-0.02, 1.05))
axes.legend()
plt.show()
