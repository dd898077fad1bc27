"""
A committee: the more members, the longer it takes
==================================================

A committee adds up what its members say. Here every member squares its field, ``y = z1^2 + ... + zp^2``. Turning the
members into one another changes nothing, so that all begin at once: at ``p / 2``.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym

for p in (1, 2):
    model = smisym.compile(smisym.SMI(" + ".join(f"z{k}**2" for k in range(1, p + 1)), p))
    first = smisym.weak_recovery(model, samples=1024, stages=1).value[0]
    print(f"{p} members: {first.names} from {first.alpha:.4f} ± {first.error:.0e} on")
    print(f"    overlaps that the symmetry leaves possible: {len(model.symmetry.basis)}")

# %%
# One number says how well a committee is known, however many members it has. What one output leaves possible is a
# circle: it shows how long the vector of the fields is, and not where it points.
#
# Layers and heads form committees too: ``limit="first_order"`` of :class:`smisym.Architecture`.

truth = np.array([1.1, 0.6])
angle = np.linspace(0, 2 * np.pi, 200)
radius = np.hypot(*truth)
circle = radius * np.stack([np.cos(angle), np.sin(angle)])
assert np.ptp(model.link(circle.T[:, :, None])) < 1e-12  # all of it gives the same output

figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.plot(*circle, label=f"all fields with y = {radius**2:.2f}")
axes.plot(*truth, "*", color="C3", markersize=14, label="the truth")
axes.set(xlabel="z1", ylabel="z2", aspect="equal", xlim=(-1.9, 1.9), ylim=(-1.9, 1.9))
axes.legend(loc="upper left", fontsize=8)
plt.show()
