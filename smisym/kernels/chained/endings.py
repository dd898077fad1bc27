"""What stands behind the layers, and beyond the boxes of tables.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def ends(count, points, weight, omega, whitening, q, r, e):
    """What stands behind matrices A C, both in rows of q: whitened late fields, rows 2 n b + 2 p + t of r, and
    exponents, rows of e, without the determinant, whose n-th power of the inverse is a row of q."""
    B, n = points.shape[0], points.shape[1]
    for k in range(np.uint64(count)):
        det = 1.0 / (q[MIX + k] * q[MIX + ROW3 + k] - q[MIX + ROW + k] * q[MIX + ROW2 + k])
        q[DET + k] = det
        q[SIZE + k] = abs(det * q[OWN + k])
    if n == 2:
        for k in range(np.uint64(count)):
            q[SIZE + k] *= q[SIZE + k]
    elif n > 2:
        for k in range(np.uint64(count)):
            q[SIZE + k] = q[SIZE + k] ** n
    for b in range(B):
        for p in range(n):
            row = np.uint64(2 * (b * n + p) * CHUNK)
            u0, u1 = points[b, p, 0], points[b, p, 1]
            o0, o1, scale = omega[p, 0], omega[p, 1], whitening[p, p]
            for k in range(np.uint64(count)):
                v0 = (q[MIX + ROW3 + k] * u0 - q[MIX + ROW + k] * u1) * q[DET + k]
                v1 = (q[MIX + k] * u1 - q[MIX + ROW2 + k] * u0) * q[DET + k]
                r[row + k] = (q[BACK + k] * v0 + q[BACK + ROW + k] * v1 - o0) * scale
                r[row + ROW + k] = (q[BACK + ROW2 + k] * v0 + q[BACK + ROW3 + k] * v1 - o1) * scale
        whitened(b, n, count, whitening, r)
        at = np.uint64(b * CHUNK)
        for k in range(np.uint64(count)):
            e[at + k] = weight[b]
        for p in range(n):
            row = np.uint64(2 * (b * n + p) * CHUNK)
            for k in range(np.uint64(count)):
                e[at + k] -= 0.5 * (r[row + k] * r[row + k] + r[row + ROW + k] * r[row + ROW + k])
        for k in range(np.uint64(count)):
            e[at + k] = e[at + k] if e[at + k] == e[at + k] else -inf


@numba.njit(**reordered)
def whitened(b, n, count, whitening, r):
    """L^{-1} below the diagonal, the last rows first, as they read those before."""
    for p in range(n - 1, -1, -1):
        for o in range(p):
            # Of what is divided by the diagonal of row o already.
            other = whitening[p, o] / whitening[o, o]
            into, out = np.uint64(2 * (b * n + p) * CHUNK), np.uint64(2 * (b * n + o) * CHUNK)
            for k in range(np.uint64(2 * CHUNK)):
                r[into + k] += other * r[out + k]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def weighted(count, B, n, cov, q, r, e, shown):
    """Rows of ``shown``: weights of what stands behind, relative to exp(top); the late fields with them, and products
    of two."""
    for b in range(B):
        at = np.uint64(b * CHUNK)
        for k in range(np.uint64(count)):
            found = weight(e[at + k] - q[TOP + k])
            e[at + k] = found * q[SIZE + k] if found > 0.0 else 0.0
    for k in range(np.uint64(count)):
        shown[k] = e[k]
    for b in range(1, B):
        at = np.uint64(b * CHUNK)
        for k in range(np.uint64(count)):
            shown[k] += e[at + k]
    for b in range(B):
        at, place = np.uint64(b * CHUNK), np.uint64(CHUNK)
        for i in range(2 * n):
            one = np.uint64((2 * n * b + i) * CHUNK)
            for k in range(np.uint64(count)):
                # Where there is no weight, fields may be infinite.
                held = e[at + k] * r[one + k] if e[at + k] != 0.0 else 0.0
                shown[place + k] = held if b == 0 else shown[place + k] + held
            place += np.uint64(CHUNK)
        if not cov:
            continue
        for i in range(2 * n):
            for j in range(i, 2 * n):
                one, other = np.uint64((2 * n * b + i) * CHUNK), np.uint64((2 * n * b + j) * CHUNK)
                for k in range(np.uint64(count)):
                    held = e[at + k] * r[one + k] * r[other + k] if e[at + k] != 0.0 else 0.0
                    shown[place + k] = held if b == 0 else shown[place + k] + held
                place += np.uint64(CHUNK)


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
