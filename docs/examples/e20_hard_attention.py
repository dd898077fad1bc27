"""
Attention with a hard phase
===========================

Of its scores this layer shows the sizes alone, so that the sign of each token is lost: it is phase retrieval with two
outputs a sample. From alpha = 1/2 on the data determine the weights. An algorithm that starts from nothing finds them
from 0.565 on.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import SMI, Architecture, Attention

layer = smisym.compile(Architecture(2, (Attention(activation="abs(s)"),)))
sizes = smisym.compile(SMI(("abs(z1[1])", "abs(z1[2])"), 1, tokens=2))
Z = np.random.default_rng(0).standard_normal((5, 1, 2))
size = sizes.link(Z)
assert np.allclose(layer.link(Z), size[:, :, None] * size[:, None, :])  # what one shows follows from the other

stable, reached = smisym.perfect_recovery(sizes, samples=2048).value
print(f"perfect in principle from {stable.alpha} on, for the algorithm from {reached.alpha:.3f} ± {reached.error:.3f}")

# %%
# GAMP between the two: from nothing it rests where it learned something; near the truth it goes on to all of it.

alpha, dim = 0.54, 1500
data = smisym.generate(sizes, dim=dim, alpha=alpha, rng=np.random.default_rng(1), normalised=True)
known = 0.998  # overlap of the informed start: the posterior mean of a channel that tells so much
near = known * data.W + np.sqrt(known * (1 - known)) * np.random.default_rng(2).standard_normal(data.W.shape)
runs = {"from nothing": {}, "near the truth": {"initial": near}}

figure, axes = plt.subplots(figsize=(5.5, 3.5), layout="constrained")
for name, how in runs.items():
    found = smisym.gamp(sizes, data.X, data.y, W=data.W, max_steps=120, seed=3, **how)
    overlap = [abs(step["overlap"][0, 0]) for step in found.history]
    print(f"{name}: overlap {overlap[-1]:.3f} after {len(overlap) - 1} steps")
    axes.plot(overlap, label=name)
axes.axhline(1, color="0.7", linewidth=0.8)
axes.set(xlabel="step of GAMP", ylabel="overlap with the truth", title=f"alpha = {alpha}, D = {dim}", ylim=(0, 1.05))
axes.legend()
plt.show()
