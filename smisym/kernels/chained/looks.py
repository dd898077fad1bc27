"""Where the next level has to be.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def held(value, at, count, log, scale, mass, start, w, total):
    """What each of some points holds of the integral, into w, and added to the total of each node."""
    for j in range(np.uint64(count)):
        k = np.uint64(at) + j
        gap = value[k] - log if value[k] - value[k] == 0.0 else -inf
        w[j] = scale * exp(gap) * mass[np.uint64(start) + j]
        total[np.uint64(start) + j] += w[j]


@numba.njit(**options)
def counted(x, y, at, count, w, box, bins):
    """Add shares to the bins of the box of their sign, along both coordinates."""
    for j in range(count):
        if w[j] == 0.0:
            continue
        g = 0 if 0.5 + x[at + j] + y[at + j] > 0.0 else 1
        for a in range(2):
            width = (box[g, a, 1] - box[g, a, 0]) / BINS
            own = (x[at + j] if a == 0 else y[at + j]) - box[g, a, 0]
            place = own / width if width > 0.0 and own > 0.0 else 0.0
            bins[g, a, int(min(place, BINS - 1.0))] += w[j]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def seen(k, s, given, work, x, y, value, tops, found):
    """What the next level is restricted to: a box of whitened numbers, outside of which there is next to nothing, how
    much that is by its distance, and ends of the states of the next table."""
    M = work.states[k]
    work.total.fill(0.0)
    work.bins.fill(0.0)
    tabled_next = k + 1 < len(work.counts)
    if not tabled_next:
        # Nodes that are others at every state have no box.
        if given.rules[s, k, 0] == 0:
            looked_last(k, s, given, work, value, tops)
            boxed(k, s, given, work, found)
        return
    for m in range(M):
        K = at_state(k, s, m, given, work, MASSES)
        for first in range(0, K, CHUNK):
            count = min(CHUNK, K - first)
            at = work.offsets[k] + m * work.rooms[k] + first
            held(value, at, count, work.logs[k, m], work.message[k, m], work.features[k, 0], first, work.w, work.total)
            counted(x, y, at, count, work.w, work.box[k + 1], work.bins)
    peaked(k, s, given, work, found)
    for g in range(2):
        for a in range(2 if work.wide[k + 1, g] else 0):
            cropped(work.bins[g, a], work.box[k + 1, g, a], found.spans[s, k, g, a], given.least[s])
    if given.rules[s, k, 0] == 0:
        boxed(k, s, given, work, found)


@numba.njit(**options)
def peaked(k, s, given, work, found):
    """Ends of the states of the next table between whose nodes its log comes within a depth of the largest."""
    n, start, top = given.sides[s, k], 0, -inf
    for m in range(work.states[k + 1]):
        top = max(top, work.logs[k + 1, m])
    for g in range(2):
        if not work.wide[k + 1, g]:
            continue
        first, last = work.ends[0], work.ends[1]
        for a in range(2):
            first[a], last[a] = n, -1
        for m in range(n * n):
            if work.logs[k + 1, start + m] >= top - given.depth[s]:
                first[0], last[0] = min(first[0], m // n), max(last[0], m // n)
                first[1], last[1] = min(first[1], m % n), max(last[1], m % n)
        start += n * n
        for a in range(2):
            b, ends = work.box[k + 1, g, a], found.peaks[s, k, g, a]
            # Nodes fall from the upper end on; one node beyond those that are kept.
            ends[0], ends[1] = b[0] - REACH * (b[1] - b[0]), b[1] + REACH * (b[1] - b[0])
            if last[a] < n - 1 and last[a] >= 0:
                ends[0] = 0.5 * (b[0] + b[1]) + 0.5 * (b[1] - b[0]) * math.cos(math.pi * (last[a] + 1.5) / n)
            if first[a] > 0 and last[a] >= 0:
                ends[1] = 0.5 * (b[0] + b[1]) + 0.5 * (b[1] - b[0]) * math.cos(math.pi * (first[a] - 0.5) / n)


@numba.njit(**options)
def boxed(k, s, given, work, found):
    """The box of whitened numbers around what holds anything, and how much is outside of it, by its distance."""
    K, d, most = work.counts[k], work.dims[k], 0.0
    first = given.starts[k]
    low, high = found.boxes[s, 0, 2 * first : 2 * first + d], found.boxes[s, 1, 2 * first : 2 * first + d]
    for j in range(K):
        most = max(most, abs(work.total[j]))
    step = given.steps[s, k]
    if d == 2:
        found.outside[s] += boxed_row(
            K,
            work.total,
            work.h[k],
            given.omega[s, first],
            given.inverse[s, first, first],
            given.signs[k] > 1,
            given.boxes[s, :, 2 * first : 2 * first + 2],
            given.radius[s],
            step,
            given.negligible[s] * most,
            low,
            high,
        )
        return
    for a in range(d):
        low[a], high[a] = inf, -inf
    for keep in range(2):
        for j in range(K):
            everyone = 0.0
            for g in range(given.signs[k]):
                everyone += math.exp(-0.5 * unfolded(k, s, g, j, given, work))
            for g in range(given.signs[k]):
                square = unfolded(k, s, g, j, given, work)
                if square == inf:
                    continue
                part = work.total[j] * math.exp(-0.5 * square) / everyone
                if keep == 0 and part > given.negligible[s] * most:
                    for a in range(d):
                        low[a], high[a] = min(low[a], work.z[a] - step), max(high[a], work.z[a] + step)
                if keep == 1:
                    gone = False
                    for a in range(d):
                        gone = gone or work.z[a] < low[a] or work.z[a] > high[a]
                    if gone:
                        found.outside[s] += part * math.sqrt(square)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def boxed_row(K, total, h, omega, inverse, folded, ends, radius, step, least, low, high):
    """The same for a layer of one row: into low and high; returns how much is outside, by its distance."""
    c0, c1, reach = omega[0] * inverse, omega[1] * inverse, radius * radius
    l0, l1, h0, h1 = inf, inf, -inf, -inf
    for j in range(np.uint64(K)):
        x, y = h[0, j] * inverse, h[1, j] * inverse
        a0, a1, b0, b1 = x - c0, y - c1, -x - c0, -y - c1
        first, second = shared(a0, a1, b0, b1, ends, reach, folded)
        one, other = total[j] * first > least, total[j] * second > least
        l0 = smaller(l0, smaller(a0 if one else inf, b0 if other else inf))
        l1 = smaller(l1, smaller(a1 if one else inf, b1 if other else inf))
        h0 = larger(h0, larger(a0 if one else -inf, b0 if other else -inf))
        h1 = larger(h1, larger(a1 if one else -inf, b1 if other else -inf))
    l0, l1, h0, h1, out = l0 - step, l1 - step, h0 + step, h1 + step, 0.0
    for j in range(np.uint64(K)):
        x, y = h[0, j] * inverse, h[1, j] * inverse
        a0, a1, b0, b1 = x - c0, y - c1, -x - c0, -y - c1
        first, second = shared(a0, a1, b0, b1, ends, reach, folded)
        one = a0 < l0 or a0 > h0 or a1 < l1 or a1 > h1
        other = b0 < l0 or b0 > h0 or b1 < l1 or b1 > h1
        out += total[j] * first * math.sqrt(a0 * a0 + a1 * a1) if one else 0.0
        out += total[j] * second * math.sqrt(b0 * b0 + b1 * b1) if other else 0.0
    low[0], low[1], high[0], high[1] = l0, l1, h0, h1
    return out


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def shared(a0, a1, b0, b1, ends, reach, folded):
    """What a node and its opposite hold of both, zero for one that was not summed over."""
    square, other = a0 * a0 + a1 * a1, b0 * b0 + b1 * b1
    first = a0 >= ends[0, 0] and a0 <= ends[1, 0] and a1 >= ends[0, 1] and a1 <= ends[1, 1] and square <= reach
    second = b0 >= ends[0, 0] and b0 <= ends[1, 0] and b1 >= ends[0, 1] and b1 <= ends[1, 1] and other <= reach
    ratio = exp(0.5 * (square - other)) if second and folded else 0.0
    share = 1.0 / (1.0 + ratio) if first else 0.0
    return share, (1.0 - share if second and folded else 0.0)


@numba.njit(**options)
def unfolded(k, s, g, j, given, work):
    """Whitened numbers of the g-th image of a node, into work.z; returns their square, infinite where the image was
    not summed over."""
    first = given.starts[k]
    n = given.starts[k + 1] - first
    square = 0.0
    for p in range(n):
        for t in range(2):
            total = 0.0
            for q in range(p + 1):
                signed = given.flips[k, g, q] * work.h[k, 2 * q + t, j] - given.omega[s, first + q, t]
                total += given.inverse[s, first + p, first + q] * signed
            work.z[2 * p + t] = total
    for p in range(n):
        if given.apart[k, p]:
            work.z[2 * p] = 0.5 * (work.z[2 * p] - work.z[2 * p + 1])
            work.z[2 * p + 1] = -work.z[2 * p]
        for t in range(2):
            total = work.z[2 * p + t]
            square += total * total
            if total < given.boxes[s, 0, 2 * (first + p) + t] or total > given.boxes[s, 1, 2 * (first + p) + t]:
                return inf
    return square if square <= given.radius[s] ** 2 else inf


@numba.njit(**options)
def cropped(held, box, span, least):
    """Ends beyond which there is less than ``least``; a share of the box beyond it where there is more at its end."""
    width = (box[1] - box[0]) / BINS
    span[0], span[1] = box[0] - REACH * (box[1] - box[0]), box[1] + REACH * (box[1] - box[0])
    total = 0.0
    for b in range(BINS):
        total += abs(held[b])
        if total > least:
            if b > 1:
                span[0] = box[0] + width * (b - 1)
            break
    total = 0.0
    for b in range(BINS - 1, -1, -1):
        total += abs(held[b])
        if total > least:
            if b < BINS - 2:
                span[1] = box[0] + width * (b + 2)
            break
