"""States of a mesh, and what stands between its nodes.

A part of the text of the module that :mod:`smisym.kernels.meshes` generates; never imported.
"""


@numba.njit(**options)
def state_of(box, n0, n1, m, scale, state, own):
    """C of the m-th node of a mesh, row by row; x and y go to own; the square of how far it is from the middle."""
    i, j = m // n1, m % n1
    u, v = 2.0 * i / (n0 - 1) - 1.0, 2.0 * j / (n1 - 1) - 1.0
    own[0] = math.expm1(max(box[0] + box[2] * u + box[3] * v, LEAST))
    own[1] = math.expm1(max(box[1] + box[4] * u + box[5] * v, LEAST))
    delta = 1.0 / (1.0 + own[0] + own[1])
    p, q = own[0] * delta, own[1] * delta
    state[0], state[1], state[2], state[3] = scale * (1.0 - q), scale * q, scale * p, scale * (1.0 - p)
    return u * u + v * v


@numba.njit(**options)
def inverted(box, n0, n1, into):
    """From coordinates to places of a mesh: its middle, and then a matrix (2, 2)."""
    det = box[2] * box[5] - box[3] * box[4]
    half0, half1 = 0.5 * (n0 - 1) / det, 0.5 * (n1 - 1) / det
    into[0], into[1] = box[0], box[1]
    into[2], into[3] = box[5] * half0, -box[3] * half0
    into[4], into[5] = -box[4] * half1, box[2] * half1


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def led(count, x, y, share, into, n0, n1, q, s, t, at):
    """Places in the next mesh behind mixings, rows of q, of the state (x, y); the least factor of delta is returned."""
    m0, m1, a00, a01, a10, a11 = into[0], into[1], into[2], into[3], into[4], into[5]
    c0, c1 = 0.5 * (n0 - 1), 0.5 * (n1 - 1)
    for k in range(np.uint64(rounded(count))):
        p, r = q[MIX + ROW2 + k] * share, q[MIX + ROW + k] * share
        factor = 1.0 - p - r
        inverse = 1.0 / factor
        # States of negative entries, which are there for stencils alone, may lead nowhere.
        first, other = larger(1.0 - r + x, SMALL) * inverse, larger(1.0 - p + y, SMALL) * inverse
        first, other = log(first) - m0, log(other) - m1
        q[MORE + k] = factor
        s[np.uint64(at) + k] = a00 * first + a01 * other + c0
        t[np.uint64(at) + k] = a10 * first + a11 * other + c1
    return smallest(q[MORE:], 0, count)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def stencils(count, s, t, at, n0, n1, w, g, cells):
    """Of places from ``at`` on, at the border where they are beyond it: weights of rows (6 CHUNK,), where the columns
    are from the third node on, and the first node of each stencil."""
    last0, last1, most0, most1 = n0 - 1.0, n1 - 1.0, n0 - 6.0, n1 - 6.0
    for k in range(np.uint64(rounded(count))):
        a, b = s[np.uint64(at) + k], t[np.uint64(at) + k]
        a = 0.0 if a < 0.0 else (last0 if a > last0 else a)
        b = 0.0 if b < 0.0 else (last1 if b > last1 else b)
        i, j = math.floor(a) - 2.0, math.floor(b) - 2.0
        i = 0.0 if i < 0.0 else (most0 if i > most0 else i)
        j = 0.0 if j < 0.0 else (most1 if j > most1 else j)
        a, g[k] = a - i - 2.0, b - j - 2.0
        cells[k] = i * n1 + j
        u, v, z, o, d, h = a + 2.0, a + 1.0, a, a - 1.0, a - 2.0, a - 3.0
        uv, dh, zo = u * v, d * h, z * o
        w[k] = -v * zo * dh * (1.0 / 120.0)
        w[ROW + k] = u * zo * dh * (1.0 / 24.0)
        w[ROW2 + k] = -uv * o * dh * (1.0 / 12.0)
        w[ROW3 + k] = uv * z * dh * (1.0 / 12.0)
        w[ROW4 + k] = -uv * zo * h * (1.0 / 24.0)
        w[ROW5 + k] = uv * zo * d * (1.0 / 120.0)


@numba.njit(**options)
def farther(table, n0, n1, s, t):
    """What a place beyond the border adds to the value there: along the slope, where that falls."""
    a, b, found = min(max(s, 0.0), n0 - 1.0), min(max(t, 0.0), n1 - 1.0), 0.0
    i, j = int(a + 0.5), int(b + 0.5)
    if s < 0.0 or s > n0 - 1.0:
        inner = 1 if s < 0.0 else n0 - 2
        slope = table[i * n1 + j] - table[inner * n1 + j]
        found += min(slope, 0.0) * abs(s - a)
    if t < 0.0 or t > n1 - 1.0:
        inner = 1 if t < 0.0 else n1 - 2
        slope = table[i * n1 + j] - table[i * n1 + inner]
        found += min(slope, 0.0) * abs(t - b)
    return found


@numba.njit(**options)
def roughness(table, n0, n1, message, found):
    """Root mean square, weighted by messages, of what stencils miss along both axes: sixth differences."""
    total, first, other = 0.0, 0.0, 0.0
    for i in range(n0):
        a = min(max(i, 3), n0 - 4)
        for j in range(n1):
            b, own = min(max(j, 3), n1 - 4), abs(message[i * n1 + j])
            along = sixth(table, a * n1 + j, n1)
            across = sixth(table, i * n1 + b, 1)
            total, first, other = total + own, first + own * along * along, other + own * across * across
    found[0], found[1] = SIXTH * math.sqrt(first / total), SIXTH * math.sqrt(other / total)


@numba.njit(**options)
def sixth(table, at, stride):
    a, b, c = table[at - 3 * stride], table[at - 2 * stride], table[at - stride]
    d, e, f = table[at + stride], table[at + 2 * stride], table[at + 3 * stride]
    return (a + f) - 6.0 * (b + e) + 15.0 * (c + d) - 20.0 * table[at]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def drawn(box, n0, n1, message, least, found):
    """A box along the principal axes of where messages are, around all nodes that hold more than ``least`` of them."""
    total, x, y, xx, xy, yy = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for m in range(n0 * n1):
        u, v, own = 2.0 * (m // n1) / (n0 - 1) - 1.0, 2.0 * (m % n1) / (n1 - 1) - 1.0, max(message[m], 0.0)
        a, b = box[2] * u + box[3] * v, box[4] * u + box[5] * v
        total, x, y = total + own, x + own * a, y + own * b
        xx, xy, yy = xx + own * a * a, xy + own * a * b, yy + own * b * b
    x, y = x / total, y / total
    xx, xy, yy = xx / total - x * x, xy / total - x * y, yy / total - y * y
    angle = 0.5 * math.atan2(2.0 * xy, xx - yy)
    c, d = math.cos(angle), math.sin(angle)
    l0, h0, l1, h1 = 0.0, 0.0, 0.0, 0.0
    for m in range(n0 * n1):
        if message[m] > least * total:
            u, v = 2.0 * (m // n1) / (n0 - 1) - 1.0, 2.0 * (m % n1) / (n1 - 1) - 1.0
            a, b = box[2] * u + box[3] * v - x, box[4] * u + box[5] * v - y
            p, q = c * a + d * b, c * b - d * a
            l0, h0, l1, h1 = min(l0, p), max(h0, p), min(l1, q), max(h1, q)
    # Half a step of the mesh farther.
    e0, e1 = 1.0 / (n0 - 1), 1.0 / (n1 - 1)
    more0 = abs(c * box[2] + d * box[4]) * e0 + abs(c * box[3] + d * box[5]) * e1
    more1 = abs(c * box[4] - d * box[2]) * e0 + abs(c * box[5] - d * box[3]) * e1
    l0, h0, l1, h1 = l0 - more0, h0 + more0, l1 - more1, h1 + more1
    m0, m1, r0, r1 = 0.5 * (l0 + h0), 0.5 * (l1 + h1), 0.5 * (h0 - l0), 0.5 * (h1 - l1)
    found[0], found[1] = box[0] + x + c * m0 - d * m1, box[1] + y + d * m0 + c * m1
    found[2], found[3], found[4], found[5] = c * r0, -d * r1, d * r0, c * r1
