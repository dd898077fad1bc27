"""The lattices of :mod:`smisym.integrate.balls` in compiled loops: all of them for one posterior after the other, from
the first lattice to the error, with no array but those of the results between.

Eight blocks of nodes make one tile, which is all nodes of one position in each block, eight lanes, then the next
position: the loop over the nodes of a tile becomes vector instructions, and so do those over its blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from smisym.base.backends import NUMBA, backend
from smisym.base.remembered import Remembered
from smisym.integrate.accuracy import FEW
from smisym.integrate.ball_text import LANES, BallText
from smisym.kernels.numba_code import HEADER, NotCompiled, impatient, load, scalar_function
from smisym.kernels.points import PointProgram
from smisym.kernels.straight_line import Line, StraightLine

_COMPILED: Remembered[Any] = Remembered(64)


def compiled_balls(point: PointProgram, cov: bool, rules: str) -> Callable[..., None] | None:
    """The loops; None where the backend is not numba, or has not all that the program calls."""
    if backend().loops != NUMBA:
        return None

    def make() -> tuple[PointProgram, Any]:
        try:
            return point, load(balls_source(point, cov, rules)).balls
        except NotCompiled:
            return point, None

    return _COMPILED.get((id(point), cov, rules, impatient()), make)[1]


def balls_source(point: PointProgram, cov: bool, rules: str) -> str:
    """The text of ``balls``, as :class:`smisym.integrate.balls.BallState` calls it."""
    program, factors = weights_as_factors(point)
    text = BallText(point, cov)
    text.factors = factors
    d = point.dim
    text.add(
        0,
        "@numba.njit('void(int64[::1], float64[:,::1], float64[:,:,::1], float64[::1], float64[:,::1], float64, '",
        "            'float64, float64, float64[::1], float64[::1], float64[::1], float64[:,::1], float64[:,:,::1], '",
        "            'float64[::1], float64[::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract'})",
        "def balls(who, numbers, places, distance, signs, rtol, depth, budget, top, radius, log_norm, mean, cov,",
        "          error, nodes):",
        "    s = np.zeros({size})",
        f"    around = np.empty(places.shape[0] * {text.size})",
        "    held, tilt = np.empty_like(around), np.empty_like(around)",
        f"    levels, sums = np.empty(places.shape[0]), np.zeros(({text.nodes}, {len(text.sums)}))",
        f"    first, centre = np.zeros({len(text.sums)}), np.zeros({d})",
        f"    highest, beside = np.zeros({d}), np.zeros(({d}, {text.size}))",
        "    for sample in who:",
        *(f"        p{q} = numbers[sample, {q}]" for q in range(point.parameters)),
        "        best, reach, lost, h = top[sample], radius[sample], -inf, FIRST",
        "        before, coarser = inf, inf",
        "        centre[:] = 0.0",
        "        for level in range(LEVELS):",
        "            if reach / h > LARGEST:",
        "                break",
        f"            tiles = np.searchsorted(distance, reach / h + {0.5 * d**0.5!r}, side='right')",
        f"            tiles = (tiles + {LANES - 1}) // {LANES}",
        f"            if nodes[sample] + tiles * {text.size * point.branches}.0 > budget:",
        "                break",
        f"            nodes[sample] += tiles * {text.size * point.branches}.0",
        "            reference, coarse, unseen, whole, steep = -inf, 0.0, 0.0, True, 0.0",
        *(f"            c{i} = centre[{i}]" for i in range(d)),
        f"            for k in range({text.size}):",
        *(f"                {text.row(f'sum{a}')} = 0.0" for a in range(len(text.sums))),
        # After all tiles one around the highest node, for how steep it is there.
        "            for tile in range(tiles + 1):",
        "                if tile == tiles:",
        "                    if not reference > -inf:",
        "                        break",
        f"                    for i in range({d}):",
        f"                        for k in range({text.size}):",
        "                            beside[i, k] = (highest[i] - centre[i]) / h + (NEAR if k == i else 0.0)",
        "                nodes_here = places[tile] if tile < tiles else beside",
    )
    _write_values(text)
    _write_changes(text)
    _write_sums(text)
    _write_look(text)
    _write_error(text, cov)
    scratch = str(len(text._starts) * text.size)
    body = "\n".join(text.lines).replace("{size}", scratch)
    return f"{HEADER}\n\n{scalar_function(program, 'point')}\n\n{rules}\n\n{body}\n"


def _write_values(text: BallText) -> None:
    """The integrand at all nodes of a tile: where its weights are given as factors, e is without them."""
    point, add, row = text.point, text.add, text.row
    d, B, m, F = point.dim, point.branches, point.residuals, text.factors
    add(4, f"for k in range({text.size}):")
    add(5, *(f"x{i} = c{i} + nodes_here[{i}, k] * h" for i in range(d)))
    arguments = [*(f"x{i}" for i in range(d)), *(f"p{q}" for q in range(point.parameters))]
    weights = text.f if F else text.w
    add(5, f"{', '.join([*text.r, *weights, *text.v])}, = point({', '.join(arguments)})")
    add(5, *(f"{row(name)} = {name}" for name in [*text.r, *weights, *text.v]))
    square = " + ".join(f"x{i} * x{i}" for i in range(d))
    for b in range(B):
        own = "".join(f" + r{b}_{j} * r{b}_{j}" for j in range(m))
        add(5, f"e{b} = {'' if F else text.own[b]} - 0.5 * ({square}{own})", f"{row(f'e{b}')} = e{b}")
    known = [*(f"e{b} - e{b}" for b in range(B)), *(f"{f} - {f}" for f in text.f if F)]
    add(5, f"{row('known')} = {' + '.join(known)}")
    add(5, f"high = {_nested('larger', [f'e{b}' for b in range(B)])}", f"{row('high')} = high")
    add(4, "if tile == tiles:")
    for b in range(B):
        add(5, f"if {text.row_at(f'e{b}', d)} == {text.row_at('high', d)}:")
        for name, i in itertools.product([f"r{b}_{j}" for j in range(m)], range(d)):
            add(6, f"steep = max(steep, abs({text.row_at(name, i)} - {text.row_at(name, d)}) / NEAR)")
        add(6, "pass")
    add(5, "break")
    # A sum of zeros, or of what is none: no ball for a posterior whose sheets end, nor a number of it.
    add(4, f"if not total(s, {text.start('known')}, {text.size}) == 0.0:", "    whole = False", "    break")
    add(4, f"most = {text.extreme('largest', 'high')}")
    if F:
        add(4, "if level == 0:", f"    for k in range({text.size}):")
        add(6, *(f"{row(w)} = log({row(f)})" for w, f in zip(text.w, text.f, strict=True)))
        whole = [f"{row(w)} + " + row(f"e{b}") for b, w in enumerate(text.own)]
        add(6, f"{row('high')} = {_nested('larger', whole)}")
        add(5, f"best = max(best, {text.extreme('largest', 'high')})")


def _nested(which: str, names: list[str]) -> str:
    found = names[0]
    for name in names[1:]:
        found = f"{which}({found}, {name})"
    return found


def _write_changes(text: BallText) -> None:
    """The range of each residual in each block."""
    point, add = text.point, text.add
    names = [f"r{b}_{j}" for b in range(point.branches) for j in range(point.residuals)]
    add(4, f"for k in range({LANES}):", "    widest = 0.0")
    for name in names:
        add(5, f"low = high = {text.at(name, 0)}")
        for i in range(1, text.nodes):
            add(5, f"low, high = smaller(low, {text.at(name, i)}), larger(high, {text.at(name, i)})")
        add(5, f"{text.at('low_' + name, 0)} = low", f"{text.at('high_' + name, 0)} = high")
        add(5, "widest = larger(widest, high - low)")
    add(5, f"{text.at('widest', 0)} = widest")
    add(4, f"change = largest(s, {text.start('widest')}, {LANES})")


def _write_sums(text: BallText) -> None:
    """Sums over all tiles, node by node, relative to the largest value met so far."""
    point, add, row = text.point, text.add, text.row
    B = range(point.branches)
    add(4, "if most > reference:", "    scale = exp(reference - most)", "    reference = most")
    own = _nested("larger", [row(f"e{b}") for b in B])
    add(5, f"for k in range({text.size}):", f"    if {own} == most:")
    add(7, *(f"highest[{i}] = c{i} + places[tile, {i}, k] * h" for i in range(point.dim)))
    add(5, "coarse *= scale", "unseen *= scale", f"for k in range({text.size}):")
    add(6, *(f"{row(f'sum{a}')} *= scale" for a in range(len(text.sums))))
    add(4, f"for k in range({text.size}):")
    F = text.factors
    add(5, *(f"w{b} = weight({row(f'e{b}')} - reference){f' * {row(text.factor[b])}' if F else ''}" for b in B))
    add(5, f"mass = {' + '.join(f'w{b}' for b in B)}", f"{row('mass')} = mass")
    add(5, *(f"x{i} = places[tile, {i}, k]" for i in range(point.dim)))
    add(5, *(f"{name} = {row(name)}" for name in [*text.r, *text.v]))
    for j in range(point.residuals):
        add(5, f"m{j} = {' + '.join(f'w{b} * r{b}_{j}' for b in B)}")
    add(5, *(f"{row(f'sum{a}')} += {expression}" for a, expression in enumerate(text.sums)))
    add(4, "if change > RESOLVED:", f"    for k in range({LANES}):")
    add(6, f"if {text.at('widest', 0)} > RESOLVED:")
    add(7, f"coarse += {' + '.join(text.at('mass', i) for i in range(text.nodes))}")


def _margin(text: BallText, depth: int) -> None:
    text.add(depth, f"widest = {text.at('widest', 0)}")
    text.add(depth, "blur = 0.05 if widest <= RESOLVED else 0.25 if widest < BLURRED else 1.5")


def _write_look(text: BallText) -> None:
    """Of cells between whose nodes ridges may lie, what they hold at most; on the first lattice, what lies around each
    node."""
    point, add = text.point, text.add
    d, B, m = point.dim, point.branches, point.residuals
    add(4, "if change > BLIND:", f"    for k in range({LANES}):")
    _margin(text, 6)
    add(6, "if widest > BLIND:", "    limit, near = -inf, 0.0")
    for i in range(d):
        add(7, "gap = inf")
        for p in range(text.nodes):
            add(7, f"gap = smaller(gap, abs(c{i} + places[tile, {i}, {p * LANES} + k] * h))")
        add(7, "gap = larger(gap - 0.5 * h, 0.0)", "near += gap * gap")
    for b in range(B):
        add(7, "away = 0.0")
        for j in range(m):
            name = f"r{b}_{j}"
            low, high = text.at("low_" + name, 0), text.at("high_" + name, 0)
            add(7, f"room = (0.5 + blur) * ({high} - {low})", f"gap = larger(larger({low}, -{high}) - room, 0.0)")
            add(7, "away += gap * gap")
        weights = text.factor[b] if text.factors else text.own[b]
        highest = _nested("larger", [text.at(weights, p) for p in range(text.nodes)])
        add(7, f"high = {f'math.log({highest})' if text.factors else highest}")
        add(7, "limit = larger(limit, high - 0.5 * away)")
    add(7, "limit = limit + 1.0 - 0.5 * near - reference", f"unseen += {text.nodes}.0 * exp(smaller(limit, 50.0))")
    # The sum so far is relative to the reference of now: kept so, and put right below.
    add(4, "levels[tile] = reference")
    add(4, "if level == 0:", f"    for k in range({LANES}):")
    _margin(text, 6)
    add(6, f"{text.at('near', 0)} = 0.5 + blur if widest > RESOLVED else AROUND")
    add(6, f"{text.at('rise', 0)} = 1.0 if widest > RESOLVED else 0.0")
    # How fast the weights may rise, at most.
    for w in text.w:
        lows, highs = ([text.at(w, p) for p in range(text.nodes)] for _ in range(2))
        add(6, f"low, high = {_nested('smaller', lows)}, {_nested('larger', highs)}")
        add(
            6,
            f"{text.at('tilt', 0)} = "
            + ("(high - low) / h" if w == "lw0" else f"larger({text.at('tilt', 0)}, (high - low) / h)"),
        )
    for p in range(text.nodes):
        add(5, f"for k in range({LANES}):", f"    near = {text.at('near', 0)}", "    limit = -inf")
        for b in range(B):
            add(6, "away = 0.0")
            for j in range(m):
                name = f"r{b}_{j}"
                low, high = text.at("low_" + name, 0), text.at("high_" + name, 0)
                add(6, f"gap = larger(abs({text.at(name, p)}) - near * ({high} - {low}), 0.0)", "away += gap * gap")
            add(6, f"limit = larger(limit, {text.at(text.own[b], p)} - 0.5 * away)")
        add(6, "near = 0.0")
        for i in range(d):
            add(6, f"gap = c{i} + places[tile, {i}, {p * LANES} + k] * h", "near += gap * gap")
        add(6, f"around[tile * {text.size} + {p * LANES} + k] = limit + {text.at('rise', 0)} - 0.5 * near")
    for p in range(text.nodes):
        add(5, f"for k in range({LANES}):", f"    tilt[tile * {text.size} + {p * LANES} + k] = {text.at('tilt', 0)}")
    add(5, f"for k in range({text.size}):", f"    held[tile * {text.size} + k] = {text.row('mass')}")


def _write_error(text: BallText, cov: bool) -> None:
    """Moments, the error, and where and how fine the next lattice is."""
    point, add = text.point, text.add
    d, m, K, Q = point.dim, point.residuals, text.nodes, len(text.sums)
    D = d + m
    add(3, "if not whole:", "    error[sample] = inf", "    break")
    add(3, f"for a in range({Q}):", "    first[a] = 0.0", f"    for p in range({K}):")
    add(5, f"sums[p, a] = total(s, {text.start('sum0')} + a * {text.size} + p * {LANES}, {LANES})")
    add(5, "first[a] += sums[p, a]")
    # From steps to coordinates.
    add(3, f"for i in range({d}):")
    add(4, f"for p in range({K}):", "    sums[p, 1 + i] = centre[i] * sums[p, 0] + h * sums[p, 1 + i]")
    add(3, "total_mass = first[0]", "coarse = total_mass if steep > RESOLVED else coarse")
    add(3, f"for i in range({d}):", "    mean[sample, i] = centre[i] + h * first[1 + i] / total_mass")
    add(3, f"for j in range({d}, {D}):", "    mean[sample, j] = first[1 + j] / total_mass")
    add(3, "aliasing, worst, every = 0.0, 0.0, 0.0", f"for a in range({K - 1}):", "    missed, square = 0.0, 0.0")
    add(4, f"for p in range({K}):", "    missed += signs[a, p] * sums[p, 0]")
    add(
        4,
        f"for j in range({D}):",
        "    own = 0.0",
        f"    for p in range({K}):",
        "        own += signs[a, p] * sums[p, 1 + j]",
    )
    add(5, "own = (own - missed * mean[sample, j]) / total_mass", "square += own * own")
    add(4, "gap = math.sqrt(square) + abs(missed / total_mass)", "worst = gap if gap > worst else worst")
    add(4, "every += gap", "aliasing += gap ** POWER if gap < 1.0 else gap")
    add(3, "aliasing *= FACTOR", "if level > 0 and every > 0.0:")
    # As from the lattice before to this one, from the sublattices to all nodes.
    add(4, "power = max(math.log(before / every) / math.log(coarser / h), 0.0)")
    add(4, "aliasing = max(aliasing, every * 2.0**-power) if power < SLOW else aliasing")
    add(3, f"told = {'min(before, 1.0) ** min(coarser / h, 2.0)' if K - 1 <= FEW else '0.0'}")
    add(3, "before, coarser = every, h", f"log_norm[sample] = reference + math.log(total_mass) + {d}.0 * math.log(h)")
    add(
        3,
        "unseen = min(DISTANCE * unseen / total_mass, 1.0)",
        "chance = min(max(worst, told), DISTANCE * coarse / total_mass)",
    )
    if not text.factors:
        add(3, "best = max(best, reference)")
    border = "border = 10.0 * math.exp(-depth) + DISTANCE * math.exp(min(lost - log_norm[sample], 0.0))"
    add(3, border)
    add(3, "error[sample] = aliasing + chance + unseen + border")
    if cov:
        _write_second(text)
    add(3, "if not error[sample] > rtol:", "    break", "if level == 0:")
    _write_ball(text)
    add(3, border, "if not rtol > border:", "    break", "h = h / finer_by(aliasing, rtol - border)")


def _write_ball(text: BallText) -> None:
    """The ball of the next lattice: around the nodes near which there may be mass."""
    add, d, size = text.add, text.point.dim, text.size
    x = [f"places[tile, {i}, k] * h" for i in range(d)]
    add(4, "floor = min(best, reference + math.log(total_mass) - FAINT) - depth")
    add(4, *(f"low{i}, high{i} = inf, -inf" for i in range(d)), "for tile in range(tiles):")
    add(5, f"for k in range({size}):", f"    there = around[tile * {size} + k] > floor")
    for i in range(d):
        add(
            6,
            f"{text.row(f'low{i}')} = {x[i]} if there else inf",
            f"{text.row(f'high{i}')} = {x[i]} if there else -inf",
        )
    for i in range(d):
        add(5, f"low{i} = min(low{i}, {text.extreme('smallest', f'low{i}')})")
        add(5, f"high{i} = max(high{i}, {text.extreme('largest', f'high{i}')})")
    add(4, *(f"c{i} = centre[{i}] = 0.5 * (low{i} + high{i})" for i in range(d)), "reach, left_out = 0.0, 0.0")
    square = " + ".join(f"({x[i]} - c{i}) * ({x[i]} - c{i})" for i in range(d))
    add(4, "for tile in range(tiles):", f"    for k in range({size}):", f"        at = tile * {size} + k")
    add(6, f"away = math.sqrt({square})", f"{text.row('away')} = away", "more = around[at] - floor")
    add(6, "slope = away - tilt[at]", "far = away * away + 2.0 * more * away / slope")
    add(6, "far = math.sqrt(far if slope > 0.0 and more > 0.0 else 0.0)")
    add(6, "further = smaller(far, away + h) if slope > 0.0 else away + h")
    add(6, f"{text.row('further')} = further if more > 0.0 else 0.0", "around[at] = away")
    add(5, f"reach = max(reach, {text.extreme('largest', 'further')})")
    add(4, "for tile in range(tiles):", f"    for k in range({size}):", f"        at = tile * {size} + k")
    add(6, f"{text.row('outside')} = held[at] if around[at] > reach else 0.0")
    add(5, f"outside = total(s, {text.start('outside')}, {size})")
    add(5, "if outside > 0.0:", "    left_out += math.exp(levels[tile] - reference) * outside")
    add(4, "if left_out > 0.0:", "    lost = math.log(left_out / total_mass) + log_norm[sample]")


def _write_second(text: BallText) -> None:
    """Covariances from sums of products, of steps for the coordinates of the lattice."""
    d, m, add = text.point.dim, text.point.residuals, text.add
    at = 1 + d + m
    for a in range(d + m):
        for b in range(a, d + m):
            left, right = (f"first[{1 + q}]" for q in (a, b))
            if b < d:
                both = f"centre[{a}] * centre[{b}] * total_mass + h * (centre[{a}] * {right} + centre[{b}] * {left})"
                value = f"{both} + h * h * first[{at}]"
            elif a < d:
                value = f"centre[{a}] * {right} + h * first[{at}]"
            else:
                value = f"first[{at}]"
            add(3, f"cov[sample, {a}, {b}] = ({value}) / total_mass - mean[sample, {a}] * mean[sample, {b}]")
            if a != b:
                add(3, f"cov[sample, {b}, {a}] = cov[sample, {a}, {b}]")
            at += 1


def weights_as_factors(point: PointProgram) -> tuple[StraightLine, bool]:
    """The program with weights in place of log-weights, where all of these are logs or their negatives; else as it is.

    A node then pays no logarithm, and no reciprocal that the program has anyway.
    """
    program = point.program
    made = {line.targets[0]: line for line in program.lines}
    parts = {
        line.operands[1]: line.targets[0]
        for line in program.lines
        if line.operation == "divide" and line.operands[0] == 1.0
    }
    first = point.branches * point.residuals
    lines, outputs = list(program.lines), list(program.outputs)
    for k in range(first, first + point.weights):
        name, upward = outputs[k], True
        while isinstance(name, str) and name in made and made[name].operation == "negative":
            name, upward = made[name].operands[0], not upward
        if not isinstance(name, str) or name not in made or made[name].operation != "log":
            return program, False
        value = made[name].operands[0]
        new = f"factor{k - first}"
        size = made[value] if isinstance(value, str) and value in made and made[value].operation == "absolute" else None
        if upward:
            outputs[k] = value
        elif size is not None and size.operands[0] in parts:
            lines.append(Line((new,), "absolute", (parts[size.operands[0]],)))
            outputs[k] = new
        else:
            lines.append(Line((new,), "divide", (1.0, value)))
            outputs[k] = new
    needed, kept = {o for o in outputs if isinstance(o, str)}, []
    for line in reversed(lines):
        if needed.intersection(line.targets):
            kept.append(line)
            needed.update(o for o in line.operands if isinstance(o, str))
    return StraightLine(program.arguments, tuple(reversed(kept)), tuple(outputs)), True
