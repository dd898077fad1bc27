"""What stands behind the layers, and beyond the boxes of tables.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def ends(c, A, count, points, weight, omega, whitening, r, e):
    """What stands behind matrices A C, C (4,) and A (4, count): whitened late fields r (B, 2 n, count) and exponents e
    (B, count), without the determinant, whose n-th power of the inverse is e[B]; returns the largest exponent."""
    B, n = points.shape[0], points.shape[1]
    own = 1.0 / (c[0] * c[3] - c[1] * c[2])
    i00, i01, i10, i11 = c[3] * own, -c[1] * own, -c[2] * own, c[0] * own
    for k in range(np.uint64(count)):
        e[B + 1, k] = 1.0 / (A[0, k] * A[3, k] - A[1, k] * A[2, k])
        e[B, k] = abs(e[B + 1, k] * own)
    if n == 2:
        for k in range(np.uint64(count)):
            e[B, k] *= e[B, k]
    elif n > 2:
        for k in range(np.uint64(count)):
            e[B, k] = e[B, k] ** n
    top = -inf
    for b in range(B):
        for k in range(np.uint64(count)):
            e[b, k] = weight[b]
        for p in range(n):
            u0, u1 = points[b, p, 0], points[b, p, 1]
            o0, o1, scale = omega[p, 0], omega[p, 1], whitening[p, p]
            for k in range(np.uint64(count)):
                v0 = (A[3, k] * u0 - A[1, k] * u1) * e[B + 1, k]
                v1 = (A[0, k] * u1 - A[2, k] * u0) * e[B + 1, k]
                r[b, 2 * p, k] = (i00 * v0 + i01 * v1 - o0) * scale
                r[b, 2 * p + 1, k] = (i10 * v0 + i11 * v1 - o1) * scale
        # L^{-1} below the diagonal, the last rows first, as they read those before.
        for p in range(n - 1, -1, -1):
            for q in range(p):
                # Of what is divided by the diagonal of row q already.
                other = whitening[p, q] / whitening[q, q]
                for t in range(2):
                    for k in range(np.uint64(count)):
                        r[b, 2 * p + t, k] += other * r[b, 2 * q + t, k]
        for p in range(n):
            for k in range(np.uint64(count)):
                e[b, k] -= 0.5 * (r[b, 2 * p, k] * r[b, 2 * p, k] + r[b, 2 * p + 1, k] * r[b, 2 * p + 1, k])
        for k in range(np.uint64(count)):
            e[b, k] = e[b, k] if e[b, k] == e[b, k] else -inf
        highest = largest(e[b], 0, count)
        top = highest if highest > top else top
    return top


@numba.njit(**options)
def beyond(c, side, unit_x, unit_y, polys):
    """What a point outside of its box has: the value at the border, and from there on along the slope, where that
    falls; polys (4, side) is scratch."""
    for axis in range(2):
        unit = min(max(unit_x if axis == 0 else unit_y, -1.0), 1.0)
        polys[2 * axis, 0], polys[2 * axis, 1] = 1.0, unit
        polys[2 * axis + 1, 0], polys[2 * axis + 1, 1] = 0.0, 1.0
        for i in range(2, side):
            polys[2 * axis, i] = 2.0 * unit * polys[2 * axis, i - 1] - polys[2 * axis, i - 2]
            polys[2 * axis + 1, i] = (
                2.0 * polys[2 * axis, i - 1] + 2.0 * unit * polys[2 * axis + 1, i - 1] - polys[2 * axis + 1, i - 2]
            )
    at, along_x, along_y = 0.0, 0.0, 0.0
    for i in range(side):
        row, slope = 0.0, 0.0
        for j in range(side):
            row += c[i, j] * polys[2, j]
            slope += c[i, j] * polys[3, j]
        at += polys[0, i] * row
        along_x += polys[1, i] * row
        along_y += polys[0, i] * slope
    for axis in range(2):
        unit, along = (unit_x, along_x) if axis == 0 else (unit_y, along_y)
        if unit > 1.0:
            at += min(along, 0.0) * (unit - 1.0)
        elif unit < -1.0:
            at -= max(along, 0.0) * (-1.0 - unit)
    return at


@numba.njit(**options)
def widened(x, y, count, farthest, span, box, wide):
    """Draw the boxes (2, 2, 2) of signs, coordinates and ends around points within the spans; wide: which signs have
    one."""
    for k in range(count):
        total = 0.5 + x[k] + y[k]
        if not max(abs(x[k]), abs(y[k])) <= farthest:
            continue
        g = 0 if total > 0.0 else 1
        if x[k] < span[g, 0, 0] or x[k] > span[g, 0, 1] or y[k] < span[g, 1, 0] or y[k] > span[g, 1, 1]:
            continue
        wide[g] = 1
        box[g, 0, 0], box[g, 0, 1] = min(box[g, 0, 0], x[k]), max(box[g, 0, 1], x[k])
        box[g, 1, 0], box[g, 1, 1] = min(box[g, 1, 0], y[k]), max(box[g, 1, 1], y[k])
