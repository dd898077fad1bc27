"""
Free entropy: which overlap wins
================================

Fixed points of state evolution are the stationary points of a function of the overlap, the free entropy. Its
largest value says what the best possible estimate knows. The one nearest to zero is what the algorithm reaches.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym

model = smisym.compile(smisym.SMI("abs(z1)", 1))
omap = smisym.overlap_map(model, samples=2048)
q = np.linspace(0.0, 0.95, 20)

# %%
# Only differences at one alpha mean anything, so that each line starts at zero.

figure, axes = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
for alpha in (0.4, 0.6, 0.8, 1.0):
    phi = np.array([smisym.free_entropy(omap, np.array([[x]]), alpha).value for x in q])
    (line,) = axes.plot(q, phi - phi[0], label=f"alpha = {alpha}")
    (reached,) = (point.value.Q[0, 0] for point in smisym.curve(omap, [alpha]))
    axes.plot(reached, np.interp(reached, q, phi - phi[0]), "o", color=line.get_color())
    print(f"alpha = {alpha}: state evolution stops at Q = {reached:.3f}")
axes.set(xlabel="overlap Q", ylabel="free entropy, less its value at 0")
axes.legend()
plt.show()

# %%
# At 0.4 the function falls from zero on: nothing can be learned. From 1/2 on it rises first, and state evolution
# climbs to the first maximum (dots).
