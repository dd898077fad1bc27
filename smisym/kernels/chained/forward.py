"""Messages, moments and errors, and the whole.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


@numba.njit(**options)
def carried(k, s, given, work, x, y, value):
    """Messages of the next table from those of this one; with covariances, the steps between both as matrices."""
    M, d, n = work.states[k], work.dims[k], given.sides[s, k]
    kinds = 1 + d if work.cov else 1
    # Of a first layer of one row, with what tells the halves of its nodes apart.
    first_row, apart = k == 0 and d == 2, 0
    if first_row:
        # Of a lattice the last of them is zero.
        apart = indicators(2) - (0 if given.rules[s, k, 0] > 0 else 1)
        work.halves[indicators(2) - 1].fill(0.0)
    for m in range(M):
        for f in range(kinds + apart):
            for g in range(2):
                if work.wide[k + 1, g] and (work.cov or m == 0):
                    work.sums_of[f, g].fill(0.0)
        K = at_state(k, s, m, given, work, ALL if first_row else MASSES)
        for first in range(0, K, CHUNK):
            count = min(CHUNK, K - first)
            at = work.offsets[k] + m * work.rooms[k] + first
            scale = 1.0 if work.cov else work.message[k, m]
            for g in range(2):
                if not work.wide[k + 1, g]:
                    continue
                b = work.box[k + 1, g]
                polynomials(x, at, count, b[0, 0], b[0, 1], n, work.px)
                polynomials(y, at, count, b[1, 0], b[1, 1], n, work.py)
                clipped(work.px, work.py, n, count)
                for f in range(kinds + apart):
                    shares(
                        x,
                        y,
                        value,
                        at,
                        count,
                        work.logs[k, m],
                        1.0 if g == 0 else -1.0,
                        scale,
                        work.features[k, f if f < kinds else f - kinds + 2 + d],
                        first,
                        work.w,
                    )
                    spread(work.w, count, work.px, work.py, n, work.row, work.sums_of[f, g])
        if work.cov or m == M - 1:
            handed_on(k, m, n, kinds, apart, given.cosines[n], work)
    off = unsmooth(k + 1, n, work, given.cosines[n], work.means[k + 1, :, 1:], work.dims[k + 1])
    if k + 2 == len(work.counts):
        off += unsmooth(k + 1, n, work, given.cosines[n], work.behind, 2 * given.points.shape[2])
    work.rough[k + 1] = off
    if work.cov:
        message, onward, steps = work.message[k], work.message[k + 1], work.steps[k, 0]
        for j in range(work.states[k + 1]):
            onward[j] = 0.0
        for m in range(M):
            for j in range(work.states[k + 1]):
                onward[j] += message[m] * steps[m, j]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def handed_on(k, m, n, kinds, apart, cosines, work):
    """What nodes of the next table count for, from sums of products of polynomials: at one state with covariances, else
    all in all, as these sums are."""
    start = 0
    for g in range(2):
        if not work.wide[k + 1, g]:
            continue
        scale = work.message[k, m] if work.cov else 1.0
        averaged(work.sums_of[0, g], n, scale, m == 0 or not work.cov, work.net[g])
        for f in range(kinds):
            out = work.steps[k, f, m, start:] if work.cov else work.message[k + 1, start:]
            weights_of_nodes(work.sums_of[f, g], n, cosines, work.half, out)
        for f in range(apart):
            weights_of_nodes(work.sums_of[kinds + f, g], n, cosines, work.half, work.halves[f, start:])
        start += n * n


@numba.njit(**options)
def averaged(sums, n, scale, anew, net):
    """Products of polynomials at one state (n, n), times scale, to their average over all of them."""
    for i in range(n):
        for j in range(n):
            net[i, j] = scale * sums[i, j] + (0.0 if anew else net[i, j])


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def unsmooth(k, n, work, cosines, means, d):
    """What the highest degrees say of means of fields (states, d) at the nodes of a table, squared: means pass through
    its polynomials as its logarithm does, and may vary more quickly."""
    square, start = 0.0, 0
    for g in range(2):
        if not work.wide[k, g]:
            continue
        for a in range(d):
            coefficients(means[start:, a], n, cosines, work.half, work.high_of)
            off = 0.0
            for i in range(n - 2, n):
                one, other = 0.0, 0.0
                for j in range(n):
                    one += work.high_of[i, j] * work.net[g, i, j]
                    other += work.high_of[j, i] * work.net[g, j, i]
                off += abs(one) + abs(other)
            square += off * off
        start += n * n
    return square


@numba.njit(**options)
def clipped(px, py, n, count):
    """Polynomials at the border for points beyond it."""
    for j in range(count):
        if not (abs(px[1, j]) <= 1.0 and abs(py[1, j]) <= 1.0):
            px[1, j] = min(max(px[1, j], -1.0), 1.0) if px[1, j] == px[1, j] else 1.0
            py[1, j] = min(max(py[1, j], -1.0), 1.0) if py[1, j] == py[1, j] else 1.0
            for i in range(2, n):
                px[i, j] = 2.0 * px[1, j] * px[i - 1, j] - px[i - 2, j]
                py[i, j] = 2.0 * py[1, j] * py[i - 1, j] - py[i - 2, j]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def shares(x, y, value, at, count, log, sign, scale, features, start, w):
    """Of points of one sign: what each holds of the integral at its state, times scale and a feature over mass."""
    for j in range(np.uint64(count)):
        k = np.uint64(at) + j
        mine = sign * (0.5 + x[k] + y[k]) > 0.0 and value[k] - value[k] == 0.0
        gap = value[k] - log if mine else -inf
        w[j] = scale * exp(gap) * features[np.uint64(start) + j]


@numba.njit(**options)
def missed_by_one_row(states, message, means):
    """What the nodes of a layer of one row miss: sums over half of them, partly of all states together, in which what
    states miss cancels, and partly of each at its size."""
    missed = 0.0
    for i in range(4, 4 + indicators(2)):
        net, size = 0.0, 0.0
        for m in range(states):
            held = message[m] * means[m, i]
            net, size = net + held, size + abs(held)
        half = TOGETHER_SHARE * abs(net) + (1.0 - TOGETHER_SHARE) * size
        missed += min(FACTOR * half * math.sqrt(half), half)
    return missed


@numba.njit(**options)
def told(s, given, work, found):
    """Moments and errors from what is known at all states."""
    layers = len(work.counts)
    n = given.points.shape[2]
    found.log_norm[s] = work.logs[0, 0]
    at = 0
    for k in range(layers):
        d, off, out = work.dims[k], 0.0, 0.0
        found.missed[s, k], found.border[s, k] = 0.0, 0.0
        for a in range(d):
            found.mean[s, at + a] = 0.0
        for m in range(work.states[k]):
            f = work.message[k, m]
            for a in range(d):
                found.mean[s, at + a] += f * work.means[k, m, 1 + a]
            found.missed[s, k] += abs(f) * work.lost[k, m] if d > 2 else 0.0
            found.border[s, k] += f * work.means[k, m, 1 + d]
            if k + 1 < layers:
                off += abs(f) * work.off[k, m]
                out += abs(f) * work.far[k, m]
        if d == 2:
            found.missed[s, k] = missed_by_one_row(work.states[k], work.message[k], work.means[k])
        if k + 1 < layers:
            found.tables[s, k], found.far[s, k] = math.sqrt(off + work.rough[k + 1]), out
        at += d
    for i in range(2 * n):
        total = 0.0
        for m in range(work.states[layers - 1]):
            total += work.message[layers - 1, m] * work.behind[m, i]
        found.mean[s, at + i] = total
    if layers > 1 and work.dims[0] == 2:
        found.missed[s, 0] += moved_by_half(
            work.states[1], work.halves, work.means[1, :, 1:], found.mean[s, 2:], work.dims[1]
        )
        if layers == 2:
            found.missed[s, 0] += moved_by_half(work.states[1], work.halves, work.behind, found.mean[s, at:], 2 * n)


@numba.njit(**options)
def moved_by_half(states, halves, means, mean, d):
    """What the nodes of a first layer miss of means of later fields, from what half of them do: a sum over nodes may
    be known where one of what varies quickly among them is not."""
    missed = 0.0
    for i in range(len(halves)):
        square = 0.0
        for a in range(d):
            total = 0.0
            for m in range(states):
                total += halves[i, m] * (means[m, a] - mean[a])
            square += total * total
        missed += min(FACTOR * square, math.sqrt(square))
    return missed


@numba.njit(**options)
def products(s, given, work, found):
    """Second moments: of one block by its numbers, of two by what the first carries on to the mean of the other."""
    layers, n = len(work.counts), given.points.shape[2]
    D = found.mean.shape[1]
    second, later, steps, means, behind = found.second[s], work.later, work.steps, work.means, work.behind
    at = D - 2 * n
    k = layers - 1
    d = work.dims[k]
    for m in range(work.states[k]):
        for a in range(d):
            later[k, m, at - d + a] = means[k, m, 1 + a]
        for i in range(2 * n):
            later[k, m, at + i] = behind[m, i]
    for k in range(layers - 2, -1, -1):
        start = 2 * given.starts[k]
        d = work.dims[k]
        for m in range(work.states[k]):
            for a in range(d):
                later[k, m, start + a] = means[k, m, 1 + a]
            for i in range(start + d, D):
                total = 0.0
                for j in range(work.states[k + 1]):
                    total += steps[k, 0, m, j] * later[k + 1, j, i]
                later[k, m, i] = total
    for i in range(D):
        for j in range(D):
            second[i, j] = 0.0
    for k in range(layers):
        start, d = 2 * given.starts[k], work.dims[k]
        for m in range(work.states[k]):
            f = work.message[k, m]
            row = 2 + d + indicators(d)
            for a in range(d):
                for b in range(a, d):
                    second[start + a, start + b] += f * means[k, m, row]
                    row += 1
            if k + 1 == layers:
                own = 2 * n
                for i in range(2 * n):
                    for j in range(i, 2 * n):
                        second[at + i, at + j] += f * behind[m, own]
                        own += 1
                for a in range(d):
                    for i in range(2 * n):
                        second[start + a, at + i] += f * behind[m, own]
                        own += 1
                continue
            for a in range(d):
                for i in range(start + d, D):
                    total = 0.0
                    for j in range(work.states[k + 1]):
                        total += steps[k, 1 + a, m, j] * later[k + 1, j, i]
                    second[start + a, i] += f * total
    for i in range(D):
        for j in range(i):
            second[i, j] = second[j, i]


@numba.njit(**owning)
def grown(x, kept, size):
    """An array with room for so many numbers that begins as x does."""
    if len(x) >= size:
        return x
    found = np.empty(2 * size)
    for k in range(kept):
        found[k] = x[k]
    return found


@numba.njit(**options)
def laid_out(s, given, work):
    """The nodes of all layers; False where there are none or too many."""
    for k in range(len(work.counts)):
        a, b = given.starts[k], given.starts[k + 1]
        n = b - a
        work.dims[k] = 2 * n
        if given.rules[s, k, 0] > 0:
            work.rooms[k] = (given.lines[k] + 1) * given.rules[s, k, 0] * given.rules[s, k, 1]
            if work.rooms[k] > work.h.shape[2]:
                return False
            continue
        low, high = given.boxes[s, 0, 2 * a : 2 * b], given.boxes[s, 1, 2 * a : 2 * b]
        flips = given.flips[k, : given.signs[k], :n]
        work.counts[k] = prepared(
            n,
            given.omega[s, a:b],
            given.factor[s, a:b, a:b],
            given.inverse[s, a:b, a:b],
            flips,
            given.apart[k],
            given.steps[s, k],
            given.radius[s],
            low,
            high,
            work.cov,
            work.h[k],
            work.features[k],
        )
        work.rooms[k] = work.counts[k]
        if work.counts[k] <= 0:
            return False
    return True


@numba.njit(
    t.void(mixing, given_type, work_type, found_type, t.boolean),
    nogil=True, cache=True, error_model="numpy", fastmath={"contract"},
)  # fmt: skip
def chains(mixed, given_arrays, scratch, found_arrays, look):
    """All posteriors of a block at their levels.

    All steps of one stand here: a function between this one and them would be optimised and written with all that is
    below it once more.
    """
    given, work, found = kept(given_arrays), kept(scratch), kept(found_arrays)
    # As long as the longest posterior so far needs.
    own_x, own_y, own_value, own_tops = np.empty(0), np.empty(0), np.empty(0), np.empty(0)
    layers = given.steps.shape[1]
    for s in range(given.steps.shape[0]):
        found.log_norm[s], found.outside[s], found.nodes[s] = nan, 0.0, 0.0
        good = laid_out(s, given, work)
        work.states[0], work.x[0, 0], work.y[0, 0], work.offsets[0] = 1, 0.0, 0.0, 0
        for k in range(layers if good else 0):
            size = work.offsets[k] + work.states[k] * work.rooms[k]
            work.offsets[k + 1] = size
            found.nodes[s] += work.states[k] * work.rooms[k]
            own_x, own_y = grown(own_x, work.offsets[k], size), grown(own_y, work.offsets[k], size)
            if k + 1 < layers and not placed(mixed, k, s, given, work, lent(own_x), lent(own_y)):
                good = False
                break
        if not good:
            continue
        size = work.offsets[layers] + TOGETHER * work.rooms[layers - 1]
        own_value, own_tops = grown(own_value, 0, size), grown(own_tops, 0, size)
        x, y, value, tops = lent(own_x), lent(own_y), lent(own_value), lent(own_tops)
        # The last layer.
        if given.rules[s, layers - 1, 0] > 0:
            at_rays(mixed, s, given, work)
        else:
            steady, state = True, 0
            while state < work.states[layers - 1]:
                if on_lattice(mixed, layers - 1, s, state, given, work, value, tops, look, steady):
                    state += TOGETHER
                else:
                    steady = False
        for k in range(layers - 2, -1, -1):
            good = good and tabled(k, s, given, work, x, y, value)
        if not (good and work.logs[0, 0] - work.logs[0, 0] == 0.0):
            continue
        # From tables to moments, errors, and what the next level needs.
        work.message[0, 0] = 1.0
        for k in range(layers - 1):
            carried(k, s, given, work, x, y, value)
        told(s, given, work, found)
        if work.cov:
            products(s, given, work, found)
        for k in range(layers if look else 0):
            seen(k, s, given, work, x, y, value, tops, found)
