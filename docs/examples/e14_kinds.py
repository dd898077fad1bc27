"""
Trivial, weak, hard: three kinds of directions
==============================================

How soon something is learned of a direction depends on what the output shows of it. Three links that are made of signs
show the three kinds there are.
"""
# Rows: sign(sign z1 + sign z2); sign(z1 z2); sign(z1 z2 z3)

import matplotlib.pyplot as plt
import numpy as np

import smisym

links = {
    "sign(sign(z1) + sign(z2))": 2,
    "sign(z1*z2)": 2,
    "sign(z1*z2*z3)": 3,
}
said = {}
for expression, fields in links.items():
    model = smisym.compile(smisym.SMI(expression, fields))
    first = smisym.weak_recovery(model, samples=1024).value[0]
    said[expression] = f"{first.kind}: alpha = {first.alpha:.4g}"
    print(f"{expression:26s} {said[expression]}, order {first.order}")

# %%
# The first output is larger where the fields are: its mean with a field is not zero, and something is learned from the
# first sample on. The second has no such mean, but a product of two fields shows in it. In the third every two fields
# are independent of the output: no algorithm that is known begins, at any number of samples per dimension.
#
# Where each output is +1 (blue) and -1 (red), in the plane of the first two fields, the third being positive:

side = np.linspace(-2, 2, 200)
a, b = np.meshgrid(side, side)
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained", sharey=True)
for axes, (expression, fields) in zip(panels, links.items(), strict=True):
    link = smisym.compile(smisym.SMI(expression, fields)).link
    Z = np.stack([a.ravel(), b.ravel(), np.ones(a.size)][:fields], axis=1)[:, :, None]
    axes.contourf(
        a, b, link(Z).reshape(a.shape), levels=[-1.5, -0.5, 0.5, 1.5], colors=["C3", "white", "C0"], alpha=0.4
    )
    axes.set_title(f"{expression}\n{said[expression]}", fontsize=9)
    axes.set(xlabel="z1", aspect="equal")
panels[0].set_ylabel("z2")
plt.show()
