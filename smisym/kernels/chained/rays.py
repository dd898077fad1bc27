"""Nodes between creases.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


@numba.njit(**options)
def pieces_of(c, n, creases, around, radius, angles, pieces):
    """Angles between neighbouring creases of a layer, n of them, at the state C, within those at which a disc is seen;
    returns how many pieces, ends of each in pieces (..., 2)."""
    det = c[0] * c[3] - c[1] * c[2]
    for i in range(n):
        u, v = math.cos(creases[i]), math.sin(creases[i])
        x, y = (c[3] * u - c[1] * v) / det, (c[0] * v - c[2] * u) / det
        angles[i] = math.atan2(y, x) % math.pi
    for i in range(1, n):
        for j in range(i, 0, -1):
            if angles[j] < angles[j - 1]:
                angles[j], angles[j - 1] = angles[j - 1], angles[j]
    distance = math.sqrt(around[0] * around[0] + around[1] * around[1])
    low, high = 0.0, math.pi
    if distance > radius:
        middle, half = math.atan2(around[1], around[0]) % math.pi, math.asin(radius / distance)
        low, high = middle - half, middle + half
    elif n > 0:
        low, high = angles[0], angles[0] + math.pi
    found, start = 0, low
    for turn in range(-1, 2):
        for i in range(n):
            angle = angles[i] + turn * math.pi
            if angle > start + 1e-12 and angle < high - 1e-12:
                pieces[found, 0], pieces[found, 1] = start, angle
                found, start = found + 1, angle
    pieces[found, 0], pieces[found, 1] = start, high
    return found + 1


@numba.njit(forceinline=True, **options)
def cosine_sine(x):
    """Of a quarter of a turn at most, by their series, which loops do many at once."""
    y = x * x
    c = -1.0 / 1124000727777607680000.0
    c = c * y + 1.0 / 2432902008176640000.0
    c = c * y - 1.0 / 6402373705728000.0
    c = c * y + 1.0 / 20922789888000.0
    c = c * y - 1.0 / 87178291200.0
    c = c * y + 1.0 / 479001600.0
    c = c * y - 1.0 / 3628800.0
    c = c * y + 1.0 / 40320.0
    c = c * y - 1.0 / 720.0
    c = c * y + 1.0 / 24.0
    c = c * y - 1.0 / 2.0
    c = c * y + 1.0
    s = -1.0 / 25852016738884976640000.0
    s = s * y + 1.0 / 51090942171709440000.0
    s = s * y - 1.0 / 121645100408832000.0
    s = s * y + 1.0 / 355687428096000.0
    s = s * y - 1.0 / 1307674368000.0
    s = s * y + 1.0 / 6227020800.0
    s = s * y - 1.0 / 39916800.0
    s = s * y + 1.0 / 362880.0
    s = s * y - 1.0 / 5040.0
    s = s * y + 1.0 / 120.0
    s = s * y - 1.0 / 6.0
    s = s * y + 1.0
    s = s * x
    return c, s


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def sectors(
    c, lines, creases, omega, factor, radius, rule, legendre, angles, pieces, around, rays, h, features, cov, detail
):
    """Nodes of one layer of one row at the state C, between its creases; returns how many.

    Gauss's rule in the angle, piece by piece, and along each ray, for a node and its opposite at once.  In the place of
    sublattices: the highest Legendre polynomials, two of the angle and two of the ray.  detail: FIELDS alone, MASSES
    as well, or ALL features.
    """
    across, along = rule[0], rule[1]
    around[0], around[1] = omega[0] / factor, omega[1] / factor
    R = 0
    for piece in range(pieces_of(c, lines, creases, around, radius, angles, pieces)):
        low, high = pieces[piece, 0], pieces[piece, 1]
        m0, m1, wide = math.cos(0.5 * (low + high)), math.sin(0.5 * (low + high)), 0.5 * (high - low)
        for i in range(np.uint64(across)):
            d0, d1 = cosine_sine(wide * legendre[across, 0, i])
            e0, e1 = m0 * d0 - m1 * d1, m1 * d0 + m0 * d1
            middle, aside = e0 * around[0] + e1 * around[1], e0 * around[1] - e1 * around[0]
            half = math.sqrt(max(radius * radius - aside * aside, 0.0))
            inner, outer = max(abs(middle) - half, 0.0), abs(middle) + half
            ray = np.uint64(R) + i
            rays[0, ray], rays[1, ray] = e0, e1
            rays[2, ray], rays[3, ray] = 0.5 * (inner + outer), 0.5 * (outer - inner)
            rays[4, ray] = wide * 0.5 * (outer - inner) * legendre[across, 1, i]
            rays[5, ray], rays[6, ray] = legendre[across, 2, i], legendre[across, 3, i]
        R += across
    cast(R, along, rays, legendre[along], factor, h, features, detail)
    if detail != FIELDS:
        weighed(R * along, around, radius, 1.0 / factor, cov, detail, h, features)
    return R * along


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def cast(R, along, rays, table, scale, h, features, detail):
    """Nodes along rays, all rays of one place after the other: fields, weights, and the polynomials there."""
    for j in range(along):
        x, w, first, second = table[0, j], table[1, j], table[2, j], table[3, j]
        for ray in range(np.uint64(R)):
            k = np.uint64(j * R) + ray
            rho = rays[2, ray] + rays[3, ray] * x
            h[0, k], h[1, k] = scale * rays[0, ray] * rho, scale * rays[1, ray] * rho
            features[0, k] = rays[4, ray] * rho * w
        if detail == ALL:
            for ray in range(np.uint64(R)):
                k = np.uint64(j * R) + ray
                features[4, k], features[5, k] = rays[5, ray], rays[6, ray]
                features[6, k], features[7, k] = first, second


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def weighed(count, around, radius, whitening, cov, detail, h, features):
    """From weights to features of nodes, of both images of each."""
    edge, reach, o0, o1 = (radius - 0.5) ** 2, radius * radius * (1.0 + 1e-12), around[0], around[1]
    for k in range(np.uint64(count)):
        x, y = h[0, k] * whitening, h[1, k] * whitening
        a0, a1, b0, b1 = x - o0, y - o1, -x - o0, -y - o1
        first, second = a0 * a0 + a1 * a1, b0 * b0 + b1 * b1
        w, v = features[0, k] * weight(-0.5 * first), features[0, k] * weight(-0.5 * second)
        w, v = w if first <= reach else 0.0, v if second <= reach else 0.0
        features[0, k] = w + v
        features[1, k] = w * a0 + v * b0
        features[2, k] = w * a1 + v * b1
        features[3, k] = (w if first > edge else 0.0) + (v if second > edge else 0.0)
        if cov:
            features[8, k] = w * a0 * a0 + v * b0 * b0
            features[9, k] = w * a0 * a1 + v * b0 * b1
            features[10, k] = w * a1 * a1 + v * b1 * b1
    if detail != ALL:
        return
    for f in range(4, 8):
        for k in range(np.uint64(count)):
            features[f, k] *= features[0, k]


@numba.njit(**options)
def at_state(k, s, m, given, work, detail):
    """The nodes of a layer at one state, which is written to work.state; returns how many."""
    matrix_of(work.x[k, m], work.y[k, m], given.scales[k], work.state)
    if given.rules[s, k, 0] > 0:
        row = given.starts[k]
        work.counts[k] = sectors(
            work.state,
            given.lines[k],
            given.creases[k],
            given.omega[s, row],
            given.factor[s, row, row],
            given.radius[s],
            given.rules[s, k],
            given.legendre,
            work.angles,
            work.pieces,
            work.around,
            work.rays,
            work.h[k],
            work.features[k],
            work.cov,
            detail,
        )
    return work.counts[k]
