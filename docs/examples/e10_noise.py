"""
Noise: how fast it hides a layer
================================

Gaussian noise on the output. The noiseless threshold of one layer on two tokens is 1/6; noise of variance 0.05 more
than doubles it.

:func:`smisym.sweep` solves for one value of a parameter after another, and with ``store=`` keeps what is done.
"""
# Rows: noise 0.05, tied, T = 2; noise 0.01, tied, T = 2; noise 0.0001, tied, T = 2

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention


def make(variance):
    return Architecture(2, (Attention(),), noise=variance)


variances = [1e-4, 1e-3, 1e-2, 3e-2, 1e-1]
swept = smisym.sweep(make, variances, samples=1024, quadrature=False)
alpha = np.array([found["thresholds"][0]["alpha"] for found in swept])
error = np.array([found["thresholds"][0]["error"] for found in swept])
for variance, a, e in zip(variances, alpha, error, strict=True):
    print(f"variance {variance:g}: {a:.3f} ± {e:.3f}")

# %%
# Weak noise is integrated around the level set, strong noise over all fields; smisym chooses, and the derivation
# says which.

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.errorbar(variances, alpha, yerr=2 * error, fmt="o-", capsize=3)
axes.axhline(1 / 6, color="0.7", linestyle=":", label="no noise, 1/6")
axes.set(xscale="log", xlabel="variance of the noise", ylabel="first threshold, N / D", ylim=(0, None))
axes.legend()
plt.show()
