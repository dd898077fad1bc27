"""
A phase diagram over the noise
==============================

The size of one field, with a little noise. With less noise than about 1e-3 the branch of fixed points folds: two states
are stable at once, and between the dashed line and the upper fold a learner that starts from nothing misses the
optimum.
"""

import matplotlib.pyplot as plt

import smisym
from smisym import SMI

diagram = smisym.phase_diagram(SMI("abs(z1)", 1), {"noise": [1e-5, 1e-4, 1e-3]}, stages=1, samples=2048, refine=0)
print(diagram)
for change in diagram.changes:
    print(change)

# %%
# All transitions, with bands of two standard errors.

figure, axes = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
diagram.plot(axes)
plt.show()
