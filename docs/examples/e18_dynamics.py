"""
Layers learned one after the other
==================================

At one number of samples the layers of a network are learned in turn: the last one first. GAMP does it in a few
iterations, stochastic gradient descent in tens of epochs, on the same data and from the same direction.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention

model = smisym.compile(Architecture(2, (Attention(), Attention())))
solution = smisym.dynamics(
    model, alpha=4.0, dim=60, seeds=2, steps=10, epochs=60, optimizers=("sgd",), samples=256, known=0.02
)
found = solution.value
for method in ("state evolution", "gamp", "sgd"):
    print(f"{method}: layers 1 and 2 are above 0.5 from step {found.learned(method)} on")

# %%
# Cosines with the truth, and two standard errors over the seeds. All begin at a squared cosine of 0.02.

figure, panels = plt.subplots(1, 2, figsize=(7.5, 3.2), sharey=True, layout="constrained")
for axes, methods in zip(panels, (("state evolution", "gamp"), ("sgd",)), strict=True):
    for method in methods:
        mean, error = found.mean(method), found.error(method)
        for layer in range(2):
            look = {"fmt": "o", "fillstyle": "none"} if method == "gamp" else {"fmt": "-", "elinewidth": 0.5}
            steps = np.arange(len(mean))
            axes.errorbar(
                steps,
                mean[:, layer],
                2 * error[:, layer],
                color=f"C{layer}",
                label=f"{method}, layer {layer + 1}",
                **look,
            )
    axes.legend(fontsize="small")
panels[0].set(xlabel="iteration", ylabel="cosine with the truth")
panels[1].set(xlabel="epoch")
plt.show()

# %%
# The same as one figure for a paper: :func:`smisym.dynamics_figure`.

smisym.dynamics_figure(solution)
