"""
What was derived, step by step
==============================

A compiled model carries its derivation: the mathematical steps that its code is made of, with their checks and
their sources. Here are those of an untied head, and a picture of what the chart says.
"""
# Rows: untied, rank 1, T = 3

import matplotlib.pyplot as plt
import numpy as np

import smisym

model = smisym.compile(smisym.Architecture(2, (smisym.Attention(tied=False),)))
for step in model.derivation.steps:
    print(f"[{step.stage}] {step.title}")
    for statement, how in step.checks:
        print(f"    checked: {statement}: {how}")

# %%
# The chart: with the scale of the queries as a free coordinate, the keys follow. Points of one level set, all of
# which give the same output:

truth = np.array([[[0.8, -0.5], [0.3, 1.1]]])  # one sample, (query, key), two tokens
scale = np.exp(np.linspace(-1.5, 1.5, 61))
Z = np.repeat(truth, len(scale), axis=0)
Z[:, 0] *= scale[:, None]
Z[:, 1] = truth[:, 1, :1] + (truth[:, 1] - truth[:, 1, :1]) / scale[:, None]
print("largest change of the output:", f"{np.abs(model.link(Z) - model.link(truth)).max():.1e}")

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(Z[:, 0, 0], Z[:, 1, 1], label="query of token 1, key of token 2")
axes.plot(*truth[0, [0, 1], [0, 1]], "*", color="C3", markersize=14, label="the truth")
axes.set(xlabel="q1", ylabel="k2", title="one line of a level set")
axes.legend()
plt.show()

# %%
# ``smisym derive head.toml -o head.html`` writes the whole document, and :func:`smisym.write_derivation` does it in
# Python.
