"""
Masks: what a causal layer hides
================================

With a causal mask the first token attends to itself alone: its row of the attention matrix says nothing. The second
row is left, and it shows one number for two fields. That takes twice as many samples.
"""
# Rows: causal mask, tied, T = 2; causal mask, tied, T = 3; positional scores, tied, T = 2

import matplotlib.pyplot as plt

import smisym
from smisym import Architecture, Attention

positions = ((0.0, 0.0), (-0.5, 0.0))
networks = {
    "no mask": Architecture(2, (Attention(),)),
    "positions": Architecture(2, (Attention(position=positions),)),
    "causal": Architecture(2, (Attention(mask="causal"),)),
    "below a causal\nlayer": Architecture(2, (Attention(mask="causal"), Attention())),
}
found = {}
for name, network in networks.items():
    first = smisym.weak_recovery(smisym.compile(network), stages=1).value[0]
    found[name] = first.alpha
    print(f"{' '.join(name.split()):20s} {first.names[0]}: {first.alpha:.5f}")

# %%
# Scores that are added by position are known, and so they cost nothing. A mask in a layer *before* the last leaves
# the last layer's attention matrix whole.

figure, axes = plt.subplots(figsize=(5.5, 3.5), layout="constrained")
axes.bar(list(found), list(found.values()), color=["C0", "C0", "C1", "C0"])
axes.axhline(1 / 6, color="0.4", linestyle=":", label="1/6")
axes.set_ylabel("first threshold, N / D")
axes.legend()
plt.show()
