"""
Hardmax: an output that only says which
=======================================

Softmax with a very large inverse temperature becomes hardmax: each row says which token has the largest score, and
nothing else.

However large beta is, softmax without noise still shows the scores in its digits. Hardmax does not: its output is
discrete.
"""
# Rows: hardmax, tied, T = 2

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention

soft = smisym.compile(Architecture(2, (Attention(beta=4.0),)))
hard = smisym.compile(Architecture(2, (Attention(activation="hardmax"),)))
for name, model in (("softmax, beta = 4", soft), ("hardmax", hard)):
    (first,) = smisym.weak_recovery(model).value
    print(f"{name}: {first.alpha:.5f}")
print(f"1/6 = {1 / 6:.5f}, pi^2 / 12 = {np.pi**2 / 12:.5f}")

# %%
# What one output leaves possible, in the plane of the two fields: two points for softmax, a cell for hardmax. The
# truth is the star.

side = np.linspace(-2, 2, 400)
Z = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 1, 2)
truth = np.array([[[1.2, 0.5]]])
figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
for axes, name, model in zip(panels, ("softmax, beta = 4", "hardmax"), (soft, hard), strict=True):
    off = np.abs(model.link(Z) - model.link(truth)).max(axis=(1, 2)).reshape(400, 400)
    if model is hard:
        axes.contourf(side, side, off < 0.5, levels=[0.5, 1.5], colors=["C0"], alpha=0.4)
    else:
        axes.plot([1.2, -1.2], [0.5, -0.5], "o", markersize=9)
    axes.plot(1.2, 0.5, "*", color="C3", markersize=14)
    axes.set(xlabel="field of token 1", title=name, xlim=(-2, 2), ylim=(-2, 2), aspect="equal")
panels[0].set_ylabel("field of token 2")
plt.show()
