"""
Prediction errors: three ways to be wrong
=========================================

How well is the output of a *new* sample predicted, at a given overlap with the truth? The best possible predictor
averages over what is not known (Bayes). Predicting with one sample of the posterior is twice as bad (Gibbs).
Putting the mean estimate into the network (plug-in) is what most people do.
"""

import matplotlib.pyplot as plt
import numpy as np

import smisym
from smisym import Architecture, Attention

model = smisym.compile(Architecture(2, (Attention(), Attention())))
q = np.linspace(0, 1, 11)
errors = {"bayes": [], "gibbs": [], "plug_in": []}
for x in q:
    found = smisym.prediction_errors(model, x * np.eye(2), samples=8192)
    for name in errors:
        errors[name].append(found[name].value)
for name, values in errors.items():
    print(f"{name:8s} with nothing known: {values[0]:.4f}, with half known: {values[5]:.4f}")

# %%
# With nothing known plug-in is worse than Bayes: the network at mean fields is not the mean of the network.

figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
for (name, values), style in zip(errors.items(), ("-", "--", ":"), strict=True):
    axes.plot(q, values, style, label=name.replace("_", "-"))
axes.set(xlabel="overlap of both layers", ylabel="mean squared error of a new output", ylim=(0, None))
axes.legend()
plt.show()
