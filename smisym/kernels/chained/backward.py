"""Sums over nodes, from the last layer to the first.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


@numba.njit(**options)
def scaled(sums, factor):
    for f in range(len(sums)):
        sums[f] *= factor


@numba.njit(**options)
def conclude(sums, d, top, means, logs, lost, m):
    """What the sums at one state say: log of the integral, means of its features, and what the nodes miss of it."""
    total = sums[0]
    logs[m] = top + math.log(total) if total > 0.0 else -inf
    for f in range(len(sums)):
        means[m, f] = sums[f] / total
    missed = 0.0
    for f in range(2 + d, 2 + d + indicators(d)):
        half = abs(means[m, f])
        missed += min(FACTOR * half * math.sqrt(half), half)
    lost[m] = missed if total > 0.0 else inf


@inlined
def logged(x):
    """The coordinate of a table: of one sign with x, and its logarithm far out."""
    far = log(1.0 + abs(x))
    return far if x >= 0.0 else -far


@numba.njit(**options)
def unlogged(x):
    return math.expm1(x) if x >= 0.0 else -math.expm1(-x)


@numba.njit(**options)
def matrix_of(x, y, scale, state):
    """C of one state, row by row."""
    first, other = unlogged(x), unlogged(y)
    delta = 1.0 / (1.0 + first + other)
    p, q = first * delta, other * delta
    state[0], state[1], state[2], state[3] = scale * (1.0 - q), scale * q, scale * p, scale * (1.0 - p)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def moved(count, x, y, share, q, next_x, next_y, at):
    """The states behind mixings, rows of q, of one state."""
    own_x, own_y = unlogged(x), unlogged(y)
    for k in range(np.uint64(rounded(count))):
        first, other = q[MIX + ROW2 + k] * share, q[MIX + ROW + k] * share
        delta = 1.0 / (1.0 - first - other)
        q[MORE + k] = logged((own_x + first) * delta)
        q[MORE + ROW + k] = logged((own_y + other) * delta)
    for k in range(np.uint64(count)):
        next_x[np.uint64(at) + k] = q[MORE + k]
        next_y[np.uint64(at) + k] = q[MORE + ROW + k]


@numba.njit(**options)
def placed(mixed, k, s, given, work, x, y):
    """States of the next table, at the nodes of grids around where this layer leads; False where there are none."""
    M, farthest = work.states[k], logged(1.0 / given.floor[s])
    for g in range(2):
        work.wide[k + 1, g] = 0
        for a in range(2):
            work.box[k + 1, g, a, 0], work.box[k + 1, g, a, 1] = inf, -inf
    for m in range(M):
        K, at = at_state(k, s, m, given, work, FIELDS), work.offsets[k] + m * work.rooms[k]
        for first in range(0, K, CHUNK):
            count = min(CHUNK, K - first)
            fielded(work.state, work.dims[k], work.h[k], first, count, work.q)
            mixed(given.kinds[k], rounded(count), work.q)
            moved(count, work.x[k, m], work.y[k, m], given.shares[k], work.q, x, y, at + first)
        widened(x[at:], y[at:], K, farthest, given.spans[s, k], work.box[k + 1], work.wide[k + 1])
    found, n = 0, given.sides[s, k]
    for g in range(2):
        if work.wide[k + 1, g]:
            b = work.box[k + 1, g]
            grid(b[0], b[1], n, work.x[k + 1, found:], work.y[k + 1, found:])
            found += n * n
    work.states[k + 1] = found
    return found > 0


@numba.njit(**options)
def rows_of(d, cov):
    return 2 + d + indicators(d) + (d * (d + 1) // 2 if cov else 0)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def looked_up(k, g, n, x, y, at, count, work, value):
    """Logs of the next table at points of sign g, into value from ``at`` on; what the highest degrees say there, into
    rest, infinite beyond the box."""
    b = work.box[k + 1, g]
    polynomials(x, at, count, b[0, 0], b[0, 1], n, work.px)
    polynomials(y, at, count, b[1, 0], b[1, 1], n, work.py)
    interpolated(work.c[k + 1, g], n, work.px, work.py, count, work.row, work.fine, work.found, work.high)
    if selected(x, y, at, count, 1.0 if g == 0 else -1.0, work.px, work.py, work.found, work.high, value, work.rest):
        for j in range(count):
            total = 0.5 + x[at + j] + y[at + j]
            if work.rest[j] == inf and (total > 0.0) == (g == 0):
                value[at + j] = beyond(work.c[k + 1, g], n, work.px[1, j], work.py[1, j], work.slopes)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def selected(x, y, at, count, sign, px, py, found, high, value, rest):
    """Take over what belongs to one sign; rest is infinite beyond the box, where how many points are is returned."""
    outer = 0
    for j in range(np.uint64(count)):
        k = np.uint64(at) + j
        mine = sign * (0.5 + x[k] + y[k]) > 0.0
        within = abs(px[1, j]) <= EDGE and abs(py[1, j]) <= EDGE
        value[k] = found[j] if mine else value[k]
        rest[j] = (high[j] if within else inf) if mine else rest[j]
        outer += 1 if mine and not within else 0
    return outer


@numba.njit(**reordered)
def untold(w, count, features, start, rest):
    """Sums of what the highest degrees say, squared, and of what lies beyond a box."""
    error, out = 0.0, 0.0
    for j in range(np.uint64(count)):
        mass = w[j] * features[0, np.uint64(start) + j]
        told = rest[j] < inf
        size = rest[j] if told else 0.0
        error += mass * size * size
        out += 0.0 if told else mass
    return error, out


@numba.njit(**options)
def tabled(k, s, given, work, x, y, value):
    """One layer before the last, at all states, by the table of the next; False where that is not finite."""
    M, d, n = work.states[k], work.dims[k], given.sides[s, k]
    start = 0
    for m in range(work.states[k + 1]):
        if not work.logs[k + 1, m] - work.logs[k + 1, m] == 0.0:
            return False
    for g in range(2):
        if work.wide[k + 1, g]:
            coefficients(work.logs[k + 1, start:], n, given.cosines[n], work.half, work.c[k + 1, g])
            start += n * n
    rows = rows_of(d, work.cov)
    sums, row, w, features, rest = work.sums[:rows], work.row, work.w, work.features[k], work.rest
    for m in range(M):
        K, top, error, out = at_state(k, s, m, given, work, ALL), -inf, 0.0, 0.0
        sums.fill(0.0)
        for first in range(0, K, CHUNK):
            count = min(CHUNK, K - first)
            at = work.offsets[k] + m * work.rooms[k] + first
            for j in range(count):
                value[at + j] = -inf
            for g in range(2):
                if work.wide[k + 1, g]:
                    looked_up(k, g, n, x, y, at, count, work, value)
            for j in range(np.uint64(count)):
                found = value[np.uint64(at) + j]
                row[j] = found if found - found == 0.0 else -inf
            highest = largest(row, 0, count)
            if highest > top:
                down = math.exp(top - highest)
                scaled(sums, down)
                error *= down
                out *= down
                top = highest
            if top == -inf:
                continue
            for j in range(np.uint64(count)):
                w[j] = weight(row[j] - top)
            added(w, count, features, first, rows, sums)
            more = untold(w, count, features, first, rest)
            error, out = error + more[0], out + more[1]
        conclude(sums, d, top, work.means[k], work.logs[k], work.lost[k], m)
        work.off[k, m], work.far[k, m] = error / sums[0], out / sums[0]
    return True
