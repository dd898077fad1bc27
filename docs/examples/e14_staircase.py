"""
A staircase: one direction opens the door to others
===================================================

``y = z1^2 + sign(z1 z2 z3)``. The first field is learned by itself. The other two are hidden behind it: nothing is
learned of them before z1 is known well.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym

model = smisym.compile(smisym.SMI("z1**2 + sign(z1*z2*z3)", 3))
thresholds = smisym.weak_recovery(model, samples=1024).value
for threshold in thresholds:
    print(threshold.kind, threshold.names, f"{threshold.alpha:.3f} ± {threshold.error:.3f}")

# %%
# Without the first term nothing ever begins: all directions are *hard*.

(hard,) = smisym.weak_recovery(smisym.compile(smisym.SMI("sign(z1*z2*z3)", 3)), samples=1024).value
print(hard.kind, hard.names, hard.alpha, "order", hard.order)

# %%
# The overlaps against alpha:

points = smisym.curve(smisym.overlap_map(model, samples=256), np.linspace(0.4, 3.2, 5))
Q = np.array([np.diag(point.value.Q) for point in points])
alphas = [point.value.alpha for point in points]
figure, axes = plt.subplots(figsize=(5.5, 3.5), layout="constrained")
for row, (name, style) in enumerate(zip(("z1", "z2", "z3"), ("o-", "s-", "x--"), strict=True)):
    axes.plot(alphas, Q[:, row], style, label=name)
for threshold in thresholds:
    axes.axvline(threshold.alpha, color="0.7", linestyle=":")
axes.set(xlabel="samples per dimension, N / D", ylabel="Q", ylim=(-0.02, 1.05))
axes.legend()
plt.show()
