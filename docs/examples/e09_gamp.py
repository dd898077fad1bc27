"""
GAMP against state evolution
============================

State evolution is a theory for infinite dimension. GAMP is the algorithm that it describes, on data of a finite
one. Step by step, the overlap of GAMP's estimate follows the theory, up to fluctuations of order ``1 / sqrt(D)``.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym

model = smisym.compile(smisym.Architecture(2, (smisym.Attention(),)))
omap = smisym.overlap_map(model, samples=4096)
alphas = [0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6]
theory = [point.value.Q[0, 0] for point in smisym.curve(omap, alphas)]

# %%
# Three data sets for each alpha, of 400 dimensions. What GAMP knows at the end is compared with the truth.

D, runs = 400, 3
found = np.zeros((len(alphas), runs))
for i, alpha in enumerate(alphas):
    for seed in range(runs):
        data = smisym.generate(model, dim=D, alpha=alpha, rng=np.random.default_rng(seed), normalised=True)
        run = smisym.gamp(model, data.X, data.y, W=data.W, damping=0.3, max_steps=60, seed=seed)
        found[i, seed] = abs(run.value.overlap[0, 0])
    print(
        f"alpha = {alpha}: theory {theory[i]:.3f}, GAMP {found[i].mean():.3f} ± {found[i].std(ddof=1) / runs**0.5:.3f}"
    )

# %%
# Near the threshold, 1/6, finite data fluctuate most.

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(alphas, theory, "-", label="state evolution, D infinite")
axes.plot(alphas, found, "o", color="C1", fillstyle="none")
axes.plot([], [], "o", color="C1", fillstyle="none", label=f"GAMP, D = {D}")
axes.axvline(1 / 6, color="0.7", linestyle=":")
axes.set(xlabel="samples per dimension, N / D", ylabel="overlap with the truth")
axes.legend()
plt.show()
