"""Pairs of states and nodes, in rows of one array, so that loops over them are vectorised.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


@numba.njit(**options)
def rounded(count):
    """To whole vectors: what is behind the last pair is carried along and not read."""
    return (count + WIDTH - 1) // WIDTH * WIDTH


@numba.njit(**options)
def fielded(c, d, h, start, count, q):
    """Mixed fields of some nodes h (d, ...) at one state c (4,)."""
    c00, c01, c10, c11 = c[0], c[1], c[2], c[3]
    for p in range(d // 2):
        row = FIELD + np.uint64(2 * p * CHUNK)
        for k in range(np.uint64(count)):
            h0, h1 = h[2 * p, np.uint64(start) + k], h[2 * p + 1, np.uint64(start) + k]
            q[row + k] = c00 * h0 + c01 * h1
            q[row + ROW + k] = c10 * h0 + c11 * h1


@numba.njit(**options)
def fielded_across(d, h, start, many, q):
    """Mixed fields of ``many`` nodes from ``start`` on at TOGETHER states, in rows of q: node by node."""
    for p in range(d // 2):
        for j in range(many):
            row = FIELD + np.uint64(2 * p * CHUNK + j * TOGETHER)
            h0, h1 = h[2 * p, start + j], h[2 * p + 1, start + j]
            for m in range(np.uint64(TOGETHER)):
                q[row + m] = q[STATE + m] * h0 + q[STATE + ROW + m] * h1
                q[row + ROW + m] = q[STATE + ROW2 + m] * h0 + q[STATE + ROW3 + m] * h1


@numba.njit(**options)
def backed(c, first, count, q):
    """One state c (4,) into rows of q: its inverse, and that of its determinant."""
    own = 1.0 / (c[0] * c[3] - c[1] * c[2])
    for k in range(np.uint64(first), np.uint64(first + count)):
        q[BACK + k], q[BACK + ROW + k] = c[3] * own, -c[1] * own
        q[BACK + ROW2 + k], q[BACK + ROW3 + k] = -c[2] * own, c[0] * own
        q[OWN + k] = own


@numba.njit(**options)
def repeated(q):
    """The inverses of TOGETHER states, once for each node of a chunk."""
    for i in range(5):
        row = BACK + np.uint64(i * CHUNK) if i < 4 else OWN
        for j in range(TOGETHER, CHUNK, TOGETHER):
            for m in range(np.uint64(TOGETHER)):
                q[row + np.uint64(j) + m] = q[row + m]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def added_across(many, values, row, weights, f, start, sums, at):
    """Add what ``many`` nodes hold, weighted by row f of weights, to row ``at`` of sums over nodes (..., TOGETHER)."""
    for j in range(0, many - 3, 4):
        a = np.uint64(row + j * TOGETHER)
        b, c, d = a + np.uint64(TOGETHER), a + np.uint64(2 * TOGETHER), a + np.uint64(3 * TOGETHER)
        w0, w1, w2, w3 = (
            weights[f, start + j],
            weights[f, start + j + 1],
            weights[f, start + j + 2],
            weights[f, start + j + 3],
        )
        for m in range(np.uint64(TOGETHER)):
            sums[at, m] += (w0 * values[a + m] + w1 * values[b + m]) + (w2 * values[c + m] + w3 * values[d + m])
    for j in range(many // 4 * 4, many):
        w0, a = weights[f, start + j], np.uint64(row + j * TOGETHER)
        for m in range(np.uint64(TOGETHER)):
            sums[at, m] += w0 * values[a + m]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def added_twice(many, values, weights, f, start, sums):
    """The same for rows f and f + 1 of both, at once."""
    for j in range(0, many - 3, 4):
        a, n = np.uint64(j * TOGETHER), start + j
        b, c, d = a + np.uint64(TOGETHER), a + np.uint64(2 * TOGETHER), a + np.uint64(3 * TOGETHER)
        w0, w1, w2, w3 = weights[f, n], weights[f, n + 1], weights[f, n + 2], weights[f, n + 3]
        v0, v1, v2, v3 = weights[f + 1, n], weights[f + 1, n + 1], weights[f + 1, n + 2], weights[f + 1, n + 3]
        for m in range(np.uint64(TOGETHER)):
            s0, s1, s2, s3 = values[a + m], values[b + m], values[c + m], values[d + m]
            sums[f, m] += (w0 * s0 + w1 * s1) + (w2 * s2 + w3 * s3)
            sums[f + 1, m] += (v0 * s0 + v1 * s1) + (v2 * s2 + v3 * s3)
    for j in range(many // 4 * 4, many):
        w0, v0, a = weights[f, start + j], weights[f + 1, start + j], np.uint64(j * TOGETHER)
        for m in range(np.uint64(TOGETHER)):
            sums[f, m] += w0 * values[a + m]
            sums[f + 1, m] += v0 * values[a + m]
