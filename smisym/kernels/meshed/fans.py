"""Nodes of a layer on rays between its creases, fewer where they count for less.

A part of the text of the module that :mod:`smisym.kernels.meshes` generates; never imported.
"""


@numba.njit(**options)
def fewer(most, width, far):
    """Nodes across a piece of that width, over what is seen in all, times pi, of a state that far from the middle of
    its mesh, squared: errors of Gauss's rule fall by one factor a node, and count as the piece and the state do."""
    found = most + NARROWER * min(math.log10(width), 0.0) - FARTHER * far if width > 1e-12 else 0.0
    return max(int(math.floor(found + 0.5)), min(FEWEST, most))


@numba.njit(**options)
def shorter(most, far):
    """Nodes along the rays of a state that far from the middle of its mesh, squared."""
    return max(int(math.floor(most - SHORTER * far + 0.5)), min(SHORTEST, most))


@numba.njit(**within)
def laid(k, s, given, work, far, cov):
    """Nodes of a layer at work.state: how many rays go to work.fan, and along each of them; how many in all."""
    radius, around = given.radius[s], work.around
    around[0], around[1] = given.omega[s, k, 0] / given.factor[s, k], given.omega[s, k, 1] / given.factor[s, k]
    pieces = pieces_of(work.state, given.lines[k], given.creases[k], around, radius, work.angles, work.pieces)
    along, R = shorter(given.rules[s, k, 1], far), 0
    turn = math.pi / (work.pieces[pieces - 1, 1] - work.pieces[0, 0])
    for piece in range(pieces):
        low, high = work.pieces[piece, 0], work.pieces[piece, 1]
        across = fewer(given.rules[s, k, 0], (high - low) * turn, far)
        rays_of(low, high, across, radius, around, given.legendre[across], R, work.rays)
        R += across
        work.ends[piece] = R
    work.fan[0], work.fan[1], work.fan[2] = R, along, pieces
    # What loops over whole vectors write behind the last ray is overwritten, or not read.
    for ray in range(R, R + 8):
        for row in range(7):
            work.rays[row, ray] = 0.0
    spread_out(R, along, work.rays, given.legendre[along], work.h, work.features)
    massed(R * along, around, radius, given.factor[s, k], cov, work.h, work.features)
    return R * along


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def rays_of(low, high, across, radius, around, table, start, rays):
    """Rays of one piece, from ``start`` on: directions, middles and halves of where they are, weights, and the two
    highest polynomials of the angle."""
    m0, m1, wide = math.cos(0.5 * (low + high)), math.sin(0.5 * (low + high)), 0.5 * (high - low)
    for i in range(np.uint64((across + 7) // 8 * 8)):
        d0, d1 = cosine_sine(wide * table[0, i])
        e0, e1 = m0 * d0 - m1 * d1, m1 * d0 + m0 * d1
        middle, aside = e0 * around[0] + e1 * around[1], e0 * around[1] - e1 * around[0]
        half = math.sqrt(max(radius * radius - aside * aside, 0.0))
        inner, outer = max(abs(middle) - half, 0.0), abs(middle) + half
        ray = np.uint64(start) + i
        rays[0, ray], rays[1, ray] = e0, e1
        rays[2, ray], rays[3, ray] = 0.5 * (inner + outer), 0.5 * (outer - inner)
        rays[4, ray] = wide * 0.5 * (outer - inner) * table[1, i]
        rays[5, ray], rays[6, ray] = table[2, i], table[3, i]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def spread_out(R, along, rays, table, h, features):
    """Nodes along rays, all rays of one place after the other: whitened fields, and weights."""
    for j in range(along):
        x, w = table[0, j], table[1, j]
        for ray in range(np.uint64((R + 7) // 8 * 8)):
            k = np.uint64(j * R) + ray
            rho = rays[2, ray] + rays[3, ray] * x
            h[0, k], h[1, k] = rays[0, ray] * rho, rays[1, ray] * rho
            features[0, k] = rays[4, ray] * rho * w


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def massed(count, around, radius, scale, cov, h, features):
    """From weights to masses of nodes, of both images of each, with whitened numbers, at the border, and with products
    of two; and from whitened fields to fields."""
    edge, reach, o0, o1 = (radius - 0.5) ** 2, radius * radius * (1.0 + 1e-12), around[0], around[1]
    for k in range(np.uint64(rounded(count))):
        x, y = h[0, k], h[1, k]
        a0, a1, b0, b1 = x - o0, y - o1, -x - o0, -y - o1
        first, second = a0 * a0 + a1 * a1, b0 * b0 + b1 * b1
        w, v = features[0, k] * weight(-0.5 * first), features[0, k] * weight(-0.5 * second)
        w, v = w if first <= reach else 0.0, v if second <= reach else 0.0
        features[0, k], features[1, k], features[2, k] = w + v, w * a0 + v * b0, w * a1 + v * b1
        features[3, k] = (w if first > edge else 0.0) + (v if second > edge else 0.0)
        h[0, k], h[1, k] = x * scale, y * scale
        if cov:
            features[4, k] = w * a0 * a0 + v * b0 * b0
            features[5, k] = w * a0 * a1 + v * b0 * b1
            features[6, k] = w * a1 * a1 + v * b1 * b1
