"""Nodes of the layers: a lattice.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


@numba.njit(**options)
def indicators(d):
    """How many features say what a rule misses."""
    return 4 if d == 2 else (1 << d) - 1


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**owning)
def prepared(n, omega, factor, inverse, flips, apart, step, radius, low, high, cov, h, features):
    """Nodes of one layer of n rows into h (2 n, K) and features (F, K); returns how many, -1 where there is no room.

    A lattice through zero in L^{-1} h, turned in the plane of each row, about the mean; of the nodes that signs of rows
    make equal one stands for all.  Features: mass, mass times each whitened number, mass near the border, signs of the
    sublattices, products of two whitened numbers.  Rows of which the mixing sees the difference of both tokens alone
    (apart) have nodes along that, at the mean of their sum.
    """
    d, size = 2 * n, h.shape[1]
    lower, count, place = np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64)
    centre, x, z = np.empty(d), np.empty(d), np.empty(d)
    G = flips.shape[0]
    for t in range(2):
        for p in range(n):
            total = 0.0
            for q in range(n):
                total += inverse[p, q] * omega[q, t]
            centre[2 * p + t] = total
    for p in range(n):
        if apart[p]:
            centre[2 * p] = 0.5 * (centre[2 * p] - centre[2 * p + 1])
            centre[2 * p + 1] = -centre[2 * p]
    total = spanned(n, centre, apart, step, radius, low, high, lower, count)
    if n == 1:
        return of_one_row(centre, factor[0, 0], flips, step, radius, low, high, lower, count, cov, h, features)
    found = 0
    for k in range(total):
        rest = k
        for a in range(d - 1, -1, -1):
            place[a] = lower[a] + rest % count[a]
            rest //= count[a]
        for p in range(n):
            y0, y1 = place[2 * p] * step, place[2 * p + 1] * step
            if apart[p] and p > 0:
                shift = sheared(place, p)
                y0 += (shift - math.floor(shift + 0.5)) * step
            c, s = turn(apart[p])
            x[2 * p], x[2 * p + 1] = c * y0 - s * y1, s * y0 + c * y1
        if not inside(x, centre, radius, low, high, flips[0], n):
            continue
        # One of all that signs make of it, among those that are inside.
        mine, same = True, 0
        for g in range(G):
            ahead = compared(place, flips[g], n)
            if ahead == 0:
                same += 1
            elif ahead > 0 and inside(x, centre, radius, low, high, flips[g], n):
                mine = False
                break
        if not mine:
            continue
        if found == size:
            return -1
        filled(n, x, place, centre, apart, step, radius, low, high, flips, same, cov, z, features, found)
        for t in range(2):
            for p in range(n):
                value = 0.0
                for q in range(n):
                    value += factor[p, q] * x[2 * q + t]
                h[2 * p + t, found] = value
        found += 1
    return found


@numba.njit(**options)
def sheared(place, p):
    """By how many steps differences of a row are shifted at a place of the row before: lines on which they vanish are
    else whole planes of nodes."""
    return FIRST * place[2 * p - 2] + OTHER * place[2 * p - 1]


@numba.njit(**options)
def turn(apart):
    """Cosine and sine of the angle between the axes of a row's lattice and its fields."""
    if apart:
        return math.sqrt(0.5), -math.sqrt(0.5)
    return math.cos(TURN), math.sin(TURN)


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def of_one_row(centre, scale, flips, step, radius, low, high, lower, count, cov, h, features):
    """The same for a layer of one row: places first, then masses, without a branch."""
    c, s, c0, c1, reach = math.cos(TURN), math.sin(TURN), centre[0], centre[1], radius * radius
    folded, size, found = flips.shape[0] > 1, h.shape[1], 0
    for i in range(count[0]):
        for j in range(count[1]):
            p0, p1 = lower[0] + i, lower[1] + j
            y0, y1 = p0 * step, p1 * step
            x0, x1 = c * y0 - s * y1, s * y0 + c * y1
            a0, a1, b0, b1 = x0 - c0, x1 - c1, -x0 - c0, -x1 - c1
            if a0 < low[0] or a0 > high[0] or a1 < low[1] or a1 > high[1] or a0 * a0 + a1 * a1 > reach:
                continue
            image = folded and not (
                b0 < low[0] or b0 > high[0] or b1 < low[1] or b1 > high[1] or b0 * b0 + b1 * b1 > reach
            )
            # The opposite of a place comes after it where its first number that is not zero is negative.
            if image and (p0 < 0 or (p0 == 0 and p1 < 0)):
                continue
            if found == size:
                return -1
            h[0, found], h[1, found] = x0, x1
            # Zero is its own opposite.
            features[0, found] = 0.5 if image and p0 == 0 and p1 == 0 else 1.0
            features[3, found] = 1.0 if image else 0.0
            odd0, odd1 = p0 & 1, p1 & 1
            features[4, found] = -1.0 if odd0 else 1.0
            features[5, found] = -1.0 if odd1 else 1.0
            features[6, found] = -1.0 if odd0 ^ odd1 else 1.0
            found += 1
    edge, volume = (radius - step) ** 2, step * step
    for k in range(np.uint64(found)):
        x, y, each = h[0, k], h[1, k], features[0, k] * volume
        a0, a1, b0, b1 = x - c0, y - c1, -x - c0, -y - c1
        first, second = a0 * a0 + a1 * a1, b0 * b0 + b1 * b1
        w, v = each * weight(-0.5 * first), each * features[3, k] * weight(-0.5 * second)
        features[0, k] = w + v
        features[1, k] = w * a0 + v * b0
        features[2, k] = w * a1 + v * b1
        features[3, k] = (w if first > edge else 0.0) + (v if second > edge else 0.0)
        features[7, k] = 0.0
        if cov:
            features[8, k] = w * a0 * a0 + v * b0 * b0
            features[9, k] = w * a0 * a1 + v * b0 * b1
            features[10, k] = w * a1 * a1 + v * b1 * b1
        h[0, k], h[1, k] = x * scale, y * scale
    for f in range(4, 7):
        for k in range(np.uint64(found)):
            features[f, k] *= features[0, k]
    return found


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def spanned(n, centre, apart, step, radius, low, high, lower, count):
    """Places of a lattice around a box and a ball, from lower (2 n,) on, count (2 n,) of them; how many in all."""
    total = 1
    for p in range(n):
        a, b = 2 * p, 2 * p + 1
        c, s = turn(apart[p])
        # The box along the axes of the lattice, and the ball.
        m0, m1 = 0.5 * (low[a] + high[a]), 0.5 * (low[b] + high[b])
        r0, r1 = 0.5 * (high[a] - low[a]), 0.5 * (high[b] - low[b])
        y0, y1 = c * m0 + s * m1, c * m1 - s * m0
        w0, w1 = c * r0 + abs(s) * r1, c * r1 + abs(s) * r0
        z0, z1 = c * centre[a] + s * centre[b], c * centre[b] - s * centre[a]
        first = math.ceil((z0 + max(y0 - w0, -radius)) / step)
        last = math.floor((z0 + min(y0 + w0, radius)) / step)
        lower[a], count[a] = first, max(last - first + 1, 0)
        if apart[p] and p > 0:
            # Places are half a step from where they are, at most.
            lower[a], count[a] = lower[a] - 1, count[a] + 2
        first = math.ceil((z1 + max(y1 - w1, -radius)) / step)
        last = math.floor((z1 + min(y1 + w1, radius)) / step)
        lower[b], count[b] = (0, 1) if apart[p] else (first, max(last - first + 1, 0))
        total *= count[a] * count[b]
    return total


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**options)
def filled(n, x, place, centre, apart, step, radius, low, high, flips, same, cov, z, features, found):
    """Features of one node: sums over all that signs make of it, of which ``same`` are it."""
    d, volume, G, most = 2 * n, step ** (2 * n), flips.shape[0], features.shape[0]
    for p in range(n):
        # The integral over the sum of both tokens.
        volume *= math.sqrt(2.0 * math.pi) / step if apart[p] else 1.0
    for f in range(most):
        features[f, found] = 0.0
    for g in range(G):
        if not inside(x, centre, radius, low, high, flips[g], n):
            continue
        square = 0.0
        for p in range(n):
            for t in range(2):
                z[2 * p + t] = flips[g, p] * x[2 * p + t] - centre[2 * p + t]
                square += z[2 * p + t] * z[2 * p + t]
        mass = math.exp(-0.5 * square) * volume / same
        features[0, found] += mass
        for a in range(d):
            features[1 + a, found] += mass * z[a]
        if square > (radius - step) ** 2:
            features[1 + d, found] += mass
        if cov:
            row = 2 + d + indicators(d)
            for a in range(d):
                for b in range(a, d):
                    features[row, found] += mass * z[a] * z[b]
                    features[row, found] += 0.5 * mass if apart[a // 2] and a // 2 == b // 2 else 0.0
                    row += 1
    for bits in range(1, 1 << d):
        odd, there = 0, True
        for a in range(d):
            if bits >> a & 1:
                odd += place[a] & 1
                if apart[a // 2] and a > 1:
                    odd += math.floor(sheared(place, a // 2) + 0.5) & 1
                there = there and not (apart[a // 2] and a & 1)
        told = -features[0, found] if odd & 1 else features[0, found]
        features[1 + d + bits, found] = told if there else 0.0


@numba.njit(**options)
def inside(x, centre, radius, low, high, signs, n):
    """Whether a node, or what signs make of it, is in the ball and the box."""
    square = 0.0
    for p in range(n):
        for t in range(2):
            z = signs[p] * x[2 * p + t] - centre[2 * p + t]
            if z < low[2 * p + t] or z > high[2 * p + t]:
                return False
            square += z * z
    return square <= radius * radius


@numba.njit(**options)
def compared(place, signs, n):
    """1, 0 or -1: whether what signs make of a place comes after it, is it, or comes before it."""
    for p in range(n):
        for t in range(2):
            other = place[2 * p + t] if signs[p] > 0.0 else -place[2 * p + t]
            if other != place[2 * p + t]:
                return 1 if other > place[2 * p + t] else -1
    return 0
