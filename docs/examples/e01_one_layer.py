"""
One layer: the more tokens, the fewer samples
=============================================

A single layer of attention with tied weights, of rank one. How many samples per dimension does it take to begin to
learn it?

The output is a T by T matrix, so that a longer sequence says more. The answer is known in closed form: ``1 / (T (T
+ 1))``.
"""
# Rows: tied, rank 1, T = 2; tied, rank 1, T = 3

import matplotlib.pyplot as plt

import smisym

# %%
# :func:`smisym.weak_recovery` returns thresholds in the order in which they are met. A single layer has one.

tokens = [2, 3, 4, 5]
found = []
for T in tokens:
    model = smisym.compile(smisym.Architecture(T, (smisym.Attention(),)))
    (threshold,) = smisym.weak_recovery(model).value
    found.append(threshold.alpha)
    print(f"T = {T}: {threshold.alpha:.6f} ± {threshold.error:.0e}, 1 / (T (T + 1)) = {1 / (T * (T + 1)):.6f}")

# %%
# Drawn, with the closed form as a line:

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.plot(tokens, [1 / (T * (T + 1)) for T in tokens], color="0.6", label="1 / (T (T + 1))")
axes.plot(tokens, found, "o", label="smisym")
axes.set(xlabel="tokens T", ylabel="first threshold, N / D", xticks=tokens, ylim=(0, None))
axes.legend()
plt.show()
