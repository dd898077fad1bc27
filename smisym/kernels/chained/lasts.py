"""The last of the layers, and what stands behind it.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


@numba.njit(**options)
def behind_pairs(mixed, k, s, count, given, work):
    """Late fields and exponents of pairs whose fields and states are rows of work.q."""
    mixed(given.kinds[k], rounded(count), work.q)
    ends(rounded(count), given.points[s], given.weight[s], given.late[s], given.whitening[s], work.q, work.r, work.e)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def on_lattice(mixed, k, s, start, given, work, value, tops, look, steady):
    """The last layer at TOGETHER states from ``start`` on, all at once, node by node.

    steady: whether weights are relative to what no exponent is above, until they turn out to be too small for that,
    and False is returned; else to the largest so far.  Where it is looked for mass, weights of pairs stay in value, and
    of each few nodes what these are relative to in tops.
    """
    d, K, B, n = work.dims[k], work.counts[k], given.points.shape[1], given.points.shape[2]
    rows, q, top, shown, cov = rows_of(d, work.cov), work.q, work.tops[0], work.shown, work.cov
    nodes, highest = CHUNK // TOGETHER, largest(given.weight[s], 0, B)
    for m in range(TOGETHER):
        own = min(start + m, work.states[k] - 1)
        matrix_of(work.x[k, own], work.y[k, own], given.scales[k], work.state)
        backed(work.state, m, 1, q)
        for i in range(4):
            q[STATE + np.uint64(i * CHUNK + m)] = work.state[i]
        top[m] = highest if steady else -inf
    repeated(q)
    work.totals.fill(0.0)
    at = work.offsets[k] + start * work.rooms[k]
    for first in range(0, K, nodes):
        many = min(nodes, K - first)
        count, place = many * TOGETHER, np.uint64(at + first * TOGETHER)
        fielded_across(d, work.h[k], first, many, q)
        behind_pairs(mixed, k, s, count, given, work)
        if not steady:
            raised(many, B, rows + len(work.late), work.e, top, work.tops[1], work.totals)
        for j in range(nodes):
            for m in range(np.uint64(TOGETHER)):
                q[TOP + np.uint64(j * TOGETHER) + m] = top[m]
        weighted(rounded(count), B, n, cov, q, work.r, work.e, work.shown)
        for f in range(0, rows - 1, 2):
            added_twice(many, work.shown, work.features[k], f, first, work.totals)
        if rows % 2 == 1:
            added_across(many, work.shown, 0, work.features[k], rows - 1, first, work.totals, rows - 1)
        summed_late(many, n, d, cov, work.shown, work.features[k], first, rows, work.totals)
        if look:
            for j in range(np.uint64(count)):
                value[place + j] = shown[j]
            for m in range(np.uint64(TOGETHER)):
                tops[place + m] = top[m]
    for m in range(TOGETHER):
        if steady and not work.totals[0, m] > FAINT:
            return False
    for m in range(min(TOGETHER, work.states[k] - start)):
        for f in range(rows):
            work.sums[f] = work.totals[f, m]
        conclude(work.sums[:rows], d, top[m], work.means[k], work.logs[k], work.lost[k], start + m)
        for f in range(len(work.late)):
            work.behind[start + m, f] = work.totals[rows + f, m] / work.sums[0]
    return True


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def summed_late(many, n, d, cov, shown, features, first, rows, totals):
    """Add late fields, products of two, and products with whitened numbers of the last layer to sums of each state."""
    row = rows
    for i in range(1, 1 + 2 * n):
        added_across(many, shown, i * CHUNK, features, 0, first, totals, row)
        row += 1
    if not cov:
        return
    for i in range(1 + 2 * n, 1 + 2 * n + n * (2 * n + 1)):
        added_across(many, shown, i * CHUNK, features, 0, first, totals, row)
        row += 1
    # Features are sums over signs of z, which leave what is behind as it is.
    for a in range(d):
        for i in range(1, 1 + 2 * n):
            added_across(many, shown, i * CHUNK, features, 1 + a, first, totals, row)
            row += 1


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def raised(many, B, rows, e, top, down, totals):
    """The largest exponent of each state, by which what is summed so far is made smaller."""
    for m in range(np.uint64(TOGETHER)):
        down[m] = top[m]
    for b in range(B):
        for j in range(many):
            row = np.uint64(b * CHUNK + j * TOGETHER)
            for m in range(np.uint64(TOGETHER)):
                down[m] = larger(down[m], e[row + m])
    higher = 0.0
    for m in range(np.uint64(TOGETHER)):
        higher += 1.0 if down[m] > top[m] else 0.0
    if higher == 0.0:
        return
    for m in range(np.uint64(TOGETHER)):
        # Where all is -inf still there is no difference.
        gap = top[m] - down[m] if down[m] > top[m] else 0.0
        top[m] = down[m]
        down[m] = weight(gap)
    for f in range(rows):
        for m in range(np.uint64(TOGETHER)):
            totals[f, m] *= down[m]


@numba.njit(**options)
def at_rays(mixed, s, given, work):
    """The last layer where its nodes are others at every state."""
    k = len(work.counts) - 1
    d, B, n, cov = work.dims[k], given.points.shape[1], given.points.shape[2], work.cov
    rows = rows_of(d, cov)
    sums, late, features = work.sums[:rows], work.late, work.features[k]
    for m in range(work.states[k]):
        K, top = at_state(k, s, m, given, work, ALL), -inf
        sums.fill(0.0)
        late.fill(0.0)
        backed(work.state, 0, min(K, CHUNK), work.q)
        for first in range(0, K, CHUNK):
            count = min(CHUNK, K - first)
            fielded(work.state, d, work.h[k], first, count, work.q)
            behind_pairs(mixed, k, s, count, given, work)
            highest = -inf
            for b in range(B):
                highest = max(highest, largest(work.e, b * CHUNK, count))
            if highest > top:
                down = math.exp(top - highest)
                scaled(sums, down)
                scaled(late, down)
                top = highest
            if top == -inf:
                continue
            for j in range(np.uint64(rounded(count))):
                work.q[TOP + j] = top
            weighted(rounded(count), B, n, cov, work.q, work.r, work.e, work.shown)
            added(work.shown, count, features, first, rows, sums)
            row = 0
            for i in range(1, 1 + 2 * n):
                late[row] += dotted(work.shown, i * CHUNK, count, features[0], first)
                row += 1
            if not cov:
                continue
            for i in range(1 + 2 * n, 1 + 2 * n + n * (2 * n + 1)):
                late[row] += dotted(work.shown, i * CHUNK, count, features[0], first)
                row += 1
            for a in range(d):
                for i in range(1, 1 + 2 * n):
                    late[row] += dotted(work.shown, i * CHUNK, count, features[1 + a], first)
                    row += 1
        conclude(sums, d, top, work.means[k], work.logs[k], work.lost[k], m)
        for f in range(len(late)):
            work.behind[m, f] = late[f] / sums[0]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def looked_last(k, s, given, work, value, tops):
    """What each node of the last layer holds of the integral, into work.total."""
    M, K, nodes, factor = work.states[k], work.counts[k], CHUNK // TOGETHER, work.tops[0]
    for start in range(0, M, TOGETHER):
        at = work.offsets[k] + start * work.rooms[k]
        for first in range(0, K, nodes):
            for m in range(TOGETHER):
                own = min(start + m, M - 1)
                factor[m] = work.message[k, own] if start + m < M else 0.0
                work.tops[1, m] = tops[at + first * TOGETHER + m] - work.logs[k, own]
            for m in range(np.uint64(TOGETHER)):
                factor[m] *= exp(work.tops[1, m])
            for j in range(min(nodes, K - first)):
                held = dotted(value, at + (first + j) * TOGETHER, TOGETHER, factor, 0)
                work.total[first + j] += held * work.features[k, 0, first + j]
