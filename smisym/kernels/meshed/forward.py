"""Messages from the first layer to the last, moments and errors, and the whole.

A part of the text of the module that :mod:`smisym.kernels.meshes` generates; never imported.
"""


@numba.njit(**options)
def passed(k, s, given, work, fields):
    """Messages of the next mesh from those of this one: of mass, and of products with each of the ``fields`` whitened
    numbers of the layers before and of this one."""
    n0, n1, into = given.sides[s, k, 0], given.sides[s, k, 1], work.messages[k + 1]
    own = fields - 2
    for f in range(1 + fields):
        for m in range(n0 * n1 + PADDING):
            into[f, m] = 0.0
    for m in range(work.states[k]):
        at, K = work.starts[k] + m * work.rooms[k], work.counts[k, m]
        if not abs(work.messages[k, 0, m]) > NOTHING:
            continue
        if work.cov:
            at_state(k, s, m, given, work, False)
        for first in range(0, K, CHUNK):
            count = min(CHUNK, K - first)
            stencils(count, work.s, work.t, at + first, n0, n1, work.w, work.g, work.cells)
            for f in range(1 + fields):
                if f > own and f > 0:
                    row, scale = f - own, work.messages[k, 0, m]
                else:
                    row, scale = 0, work.messages[k, f, m]
                for j in range(count):
                    share = work.share[at + first + j]
                    if not abs(share * work.messages[k, 0, m]) > NOTHING:
                        continue
                    if row > 0:
                        share *= work.features[row, first + j] / work.features[0, first + j]
                    shared_out(into[f], int(work.cells[j]), n1, work.w, j, CHUNK, work.g[j], share * scale)


@numba.njit(**options)
def told(s, given, work, found):
    """Means and errors from what is known at all states."""
    layers, n = given.rules.shape[1], given.points.shape[2]
    for k in range(layers):
        f0, f1, edge, across, along, far = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for m in range(work.states[k]):
            own, means = work.messages[k, 0, m], work.means[k, m]
            f0, f1, edge = f0 + own * means[0], f1 + own * means[1], edge + own * means[2]
            across, along, far = across + abs(own) * means[3], along + abs(own) * means[4], far + abs(own) * means[5]
        found.mean[s, 2 * k], found.mean[s, 2 * k + 1], found.border[s, k] = f0, f1, edge
        found.missed[s, k, 0], found.missed[s, k, 1] = across, along
        if k + 1 < layers:
            found.far[s, k] = far
            n0, n1 = given.sides[s, k, 0], given.sides[s, k, 1]
            roughness(work.tables[k], n0, n1, work.messages[k + 1, 0], found.tables[s, k])
            drawn(given.boxes[s, k], n0, n1, work.messages[k + 1, 0], given.least[s], found.boxes[s, k])
    for i in range(2 * n):
        held = 0.0
        for m in range(work.states[layers - 1]):
            held += work.messages[layers - 1, 0, m] * work.behind[m, i]
        found.mean[s, 2 * layers + i] = held


@numba.njit(**owning)
def products(s, given, work, found):
    """Second moments: of a layer by its numbers, of two by what the first one carries on to the mean of the other."""
    layers, n, second = given.rules.shape[1], given.points.shape[2], found.second[s]
    for k in range(layers):
        M, own, at = work.states[k], work.messages[k], 2 * k
        second[at, at] = dotted(own[0], 0, M, work.means[k, :, 6].copy(), 0)
        second[at, at + 1] = dotted(own[0], 0, M, work.means[k, :, 7].copy(), 0)
        second[at + 1, at + 1] = dotted(own[0], 0, M, work.means[k, :, 8].copy(), 0)
        for f in range(at):
            for a in range(2):
                second[f, at + a] = dotted(own[1 + f], 0, M, work.means[k, :, a].copy(), 0)
    M, own, at = work.states[layers - 1], work.messages[layers - 1], 2 * layers
    row = 2 * n
    for i in range(2 * n):
        for f in range(at - 2):
            second[f, at + i] = dotted(own[1 + f], 0, M, work.behind[:, i].copy(), 0)
        for j in range(i, 2 * n):
            second[at + i, at + j] = dotted(own[0], 0, M, work.behind[:, row].copy(), 0)
            row += 1
    for a in range(2):
        for i in range(2 * n):
            second[at - 2 + a, at + i] = dotted(own[0], 0, M, work.behind[:, row].copy(), 0)
            row += 1
    for i in range(at + 2 * n):
        for j in range(i):
            second[i, j] = second[j, i]


@numba.njit(
    t.void(mixing, given_type, work_type, found_type),
    nogil=True, cache=True, error_model="numpy", fastmath={"contract"},
)  # fmt: skip
def meshes(mixed, given_arrays, scratch, found_arrays):
    """All posteriors of a block at their levels."""
    given, work, found = kept(given_arrays), kept(scratch), kept(found_arrays)
    layers = given.rules.shape[1]
    for s in range(given.rules.shape[0]):
        found.log_norm[s], found.nodes[s] = nan, 0.0
        if not swept(mixed, s, given, work, found):
            continue
        work.messages[0, 0, 0] = 1.0
        for k in range(layers - 1):
            passed(k, s, given, work, 2 * (k + 1) if work.cov else 0)
        told(s, given, work, found)
        if work.cov:
            products(s, given, work, found)
        found.log_norm[s] = work.logs[0]
