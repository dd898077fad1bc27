"""Sums over the nodes of a layer, state by state, from the last layer to the first.

A part of the text of the module that :mod:`smisym.kernels.meshes` generates; never imported.
"""


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**within)
def at_state(k, s, m, given, work, cov):
    """The nodes of a layer at its m-th state, which goes to work.state; returns how many."""
    far = 0.0
    if k > 0:
        n0, n1 = given.sides[s, k - 1, 0], given.sides[s, k - 1, 1]
        far = state_of(given.boxes[s, k - 1], n0, n1, m, given.scales[k], work.state, work.own)
    else:
        work.state[0], work.state[1], work.state[2], work.state[3] = 1.0, 0.0, 0.0, 1.0
        work.own[0], work.own[1] = 0.0, 0.0
    return laid(k, s, given, work, far, cov)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**within)
def by_mesh(mixed, k, s, K, at, given, work):
    """Logs of the integral over all later layers at the nodes of one state, into work.value; False where a mixing
    turns the sign of delta."""
    n0, n1 = given.sides[s, k, 0], given.sides[s, k, 1]
    table = work.tables[k]
    for first in range(0, K, CHUNK):
        count = min(CHUNK, K - first)
        fielded(work.state, 2, work.h, first, count, work.q)
        mixed(given.kinds[k], rounded(count), work.q)
        x, y, into = work.own[0], work.own[1], work.into[k]
        least = led(count, x, y, given.shares[k], into, n0, n1, work.q, work.s, work.t, at + first)
        if not least > 0.0:
            return False
        stencils(count, work.s, work.t, at + first, n0, n1, work.w, work.g, work.cells)
        for j in range(count):
            work.value[first + j] = between(table, int(work.cells[j]), n1, work.w, j, CHUNK, work.g[j])
        outer(count, first, at + first, table, n0, n1, work)
    return True


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**within)
def outer(count, first, at, table, n0, n1, work):
    """Values at places beyond the border, and which ones these are."""
    beyond = 0.0
    for j in range(np.uint64(rounded(count))):
        a, b = work.s[np.uint64(at) + j], work.t[np.uint64(at) + j]
        out = 0.0 if a >= 0.0 and a <= n0 - 1.0 and b >= 0.0 and b <= n1 - 1.0 else 1.0
        work.out[np.uint64(first) + j] = out
        beyond += out
    if beyond > 0.0:
        for j in range(count):
            if work.out[first + j] > 0.0:
                work.value[first + j] += farther(table, n0, n1, work.s[at + j], work.t[at + j])


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**within)
def by_points(mixed, k, s, K, given, work):
    """The same for the last layer, by what stands behind it, whose whitened late fields go to work.late."""
    B, n = given.points.shape[1], given.points.shape[2]
    backed(work.state, 0, min(K, CHUNK), work.q)
    q, e, r = work.q, work.e, work.r
    for first in range(0, K, CHUNK):
        count = min(CHUNK, K - first)
        fielded(work.state, 2, work.h, first, count, q)
        mixed(given.kinds[k], rounded(count), q)
        ends(rounded(count), given.points[s], given.weight[s], given.late[s], given.whitening[s], q, r, e)
        for j in range(np.uint64(rounded(count))):
            q[TOP + j] = e[j]
        for b in range(1, B):
            for j in range(np.uint64(rounded(count))):
                q[TOP + j] = larger(q[TOP + j], e[np.uint64(b * CHUNK) + j])
        for j in range(np.uint64(rounded(count))):
            q[TOP + j] = q[TOP + j] if q[TOP + j] > -inf else 0.0
            q[MORE + j] = 0.0
        for b in range(B):
            for j in range(np.uint64(rounded(count))):
                own = weight(e[np.uint64(b * CHUNK) + j] - q[TOP + j])
                e[np.uint64(b * CHUNK) + j] = own
                q[MORE + j] += own
        for j in range(np.uint64(rounded(count))):
            found = q[TOP + j] + log(q[MORE + j] * q[SIZE + j])
            work.value[np.uint64(first) + j] = found if found - found == 0.0 else -inf
        for i in range(2 * n):
            for j in range(np.uint64(rounded(count))):
                work.late[i, np.uint64(first) + j] = 0.0
            for b in range(B):
                at = np.uint64((2 * n * b + i) * CHUNK)
                for j in range(np.uint64(rounded(count))):
                    own = e[np.uint64(b * CHUNK) + j]
                    held = own / q[MORE + j] * r[at + j] if own > 0.0 else 0.0
                    work.late[i, np.uint64(first) + j] += held
        if work.cov:
            squared(count, first, B, n, work)


@numba.njit(**within)
def squared(count, first, B, n, work):
    """Products of two late fields, into the rows of work.late behind these."""
    row, q, e, r = 2 * n, work.q, work.e, work.r
    for i in range(2 * n):
        for o in range(i, 2 * n):
            for j in range(np.uint64(count)):
                work.late[row, np.uint64(first) + j] = 0.0
            for b in range(B):
                one, other = np.uint64((2 * n * b + i) * CHUNK), np.uint64((2 * n * b + o) * CHUNK)
                for j in range(np.uint64(count)):
                    own = e[np.uint64(b * CHUNK) + j]
                    held = own / q[MORE + j] * r[one + j] * r[other + j] if own > 0.0 else 0.0
                    work.late[row, np.uint64(first) + j] += held
            row += 1


@numba.njit(**within)
def concluded(k, m, K, at, given, work):
    """From logs at the nodes of one state to that of the integral, which is returned, shares of nodes, and means."""
    value, features, rays, means = work.value, work.features, work.rays, work.means[k, m]
    R, along = work.fan[0], work.fan[1]
    top, table = largest(value, 0, K), given.legendre[along]
    if not top > -inf:
        return -inf
    # To whole vectors of nodes, and of rays.
    whole = np.uint64(rounded(K + 7))
    for j in range(np.uint64(K), whole):
        value[j], features[0, j], features[1, j], features[2, j], features[3, j] = top, 0.0, 0.0, 0.0, 0.0
    for j in range(whole):
        work.share[np.uint64(at) + j] = weight(value[j] - top) * features[0, j]
    mass = total(work.share, at, whole)
    if not mass > 0.0:
        return -inf
    inverse = 1.0 / mass
    for j in range(whole):
        own = work.share[np.uint64(at) + j] * inverse
        work.share[np.uint64(at) + j] = own
        # Features are of both images of a node.
        work.ratio[j] = own / features[0, j] if own > 0.0 else 0.0
    for f in range(3):
        means[f] = dotted(features[1 + f], 0, whole, work.ratio, 0)
    fan, sums = np.uint64((R + 7) // 8 * 8), work.by_ray
    for ray in range(fan):
        sums[0, ray], sums[1, ray], sums[2, ray] = 0.0, 0.0, 0.0
    for j in range(along):
        first, second, start = table[2, j], table[3, j], np.uint64(at + j * R)
        for ray in range(fan):
            own = work.share[start + ray]
            sums[0, ray] += own
            sums[1, ray] += own * first
            sums[2, ray] += own * second
    begin, means[3] = 0, 0.0
    for piece in range(work.fan[2]):
        count = work.ends[piece] - begin
        for row in range(5, 7):
            means[3] += missing(dotted(rays[row], begin, count, sums[0], begin))
        begin += count
    ray0, ray1 = total(sums[1], 0, R), total(sums[2], 0, R)
    means[4] = min(ray0 * ray0, abs(ray0)) + min(ray1 * ray1, abs(ray1))
    return top + math.log(mass)


@numba.njit(**options)
def missing(told):
    """What a rule in the angle misses of one piece, at whose ends functions may be steep."""
    half = abs(told)
    return min(ACROSS * half * math.sqrt(math.sqrt(half)), half)


@numba.njit(**within)
def summed_up(k, s, m, K, at, given, work):
    """What else there is to one state: of a mesh what is beyond it; of points the late fields; products of two."""
    means, n = work.means[k, m], given.points.shape[2]
    means[5] = 0.0
    if k + 1 < given.rules.shape[1]:
        means[5] = dotted(work.share, at, K, work.out, 0)
    else:
        for i in range(2 * n + (n * (2 * n + 1) if work.cov else 0)):
            work.behind[m, i] = dotted(work.share, at, K, work.late[i], 0)
        if work.cov:
            row = 2 * n + n * (2 * n + 1)
            for a in range(2):
                for j in range(np.uint64(K)):
                    work.mixed[j] = work.ratio[j] * work.features[1 + a, j]
                for i in range(2 * n):
                    work.behind[m, row] = dotted(work.mixed, 0, K, work.late[i], 0)
                    row += 1
    if work.cov:
        for f in range(3):
            means[6 + f] = dotted(work.features[4 + f], 0, K, work.ratio, 0)


@numba.njit(**options)
def swept(mixed, s, given, work, found):
    """All tables of one posterior, and what its nodes are; False where a value is not finite."""
    layers = given.rules.shape[1]
    start = 0
    for k in range(layers):
        work.starts[k], work.states[k] = start, given.sides[s, k - 1, 0] * given.sides[s, k - 1, 1] if k > 0 else 1
        pieces = given.lines[k] + 1
        work.rooms[k] = rounded(pieces * given.rules[s, k, 0] * given.rules[s, k, 1]) + 2 * WIDTH
        start += work.states[k] * work.rooms[k]
        if k > 0:
            inverted(given.boxes[s, k - 1], given.sides[s, k - 1, 0], given.sides[s, k - 1, 1], work.into[k - 1])
    for k in range(layers - 1, -1, -1):
        for m in range(work.states[k]):
            at, K = work.starts[k] + m * work.rooms[k], at_state(k, s, m, given, work, work.cov)
            work.counts[k, m] = K
            found.nodes[s] += K
            if k + 1 < layers:
                if not by_mesh(mixed, k, s, K, at, given, work):
                    return False
            else:
                by_points(mixed, k, s, K, given, work)
            log = concluded(k, m, K, at, given, work)
            if not log > -inf:
                return False
            summed_up(k, s, m, K, at, given, work)
            if k > 0:
                work.tables[k - 1, m] = log
            else:
                work.logs[0] = log
    return True
