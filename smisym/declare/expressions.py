"""Arithmetic text into sympy.  Text is never evaluated: only whitelisted nodes of its syntax tree are read.

Text may come from a file of somebody else.  Beside the whitelist there are limits on length, nodes, nesting, numbers
and exponents, each checked before sympy computes anything that could grow beyond it.
"""

from __future__ import annotations

import ast
import difflib
import keyword
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NoReturn, TypeAlias

import numpy as np
import sympy as sp
from sympy.core.function import Application

from smisym.base.errors import InputError
from smisym.declare.evaluating import NUMERIC, evaluate

MAX_LENGTH = 8000
MAX_NODES = 4000
MAX_DEPTH = 50
MAX_EXPONENT = 64
MAX_BITS = 1000  # of numerators and denominators: they and their ratios are floats
MAX_CONSTANT = 24  # sympy nodes; it decides signs of constants by evaluating them, which takes for ever on large ones
MAX_EXPANDED = 40  # sympy multiplies out arguments of sinh, cosh and tanh to find imaginary parts

Variables: TypeAlias = Mapping[str, sp.Expr | tuple[sp.Expr, ...]]


def _unevaluated(function: type[sp.Expr]) -> Callable[..., sp.Expr]:
    # Kept as written: sympy's attempts to simplify these are slow when nested, and can leave conjugates behind.
    def build(*arguments: sp.Expr) -> sp.Expr:
        return function(*arguments, evaluate=all(argument.is_Rational for argument in arguments))

    return build


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    made = sp.Pow(base, exponent)
    # sympy leaves 10**(1/4)*sqrt(10) where it multiplied exponents, and merges it the next time it is multiplied.
    return sp.Mul(*made.args) if made.is_Mul else made


def _sqrt(argument: sp.Expr) -> sp.Expr:
    return _power(argument, sp.S.Half)


def _relu(argument: sp.Expr) -> sp.Expr:
    return FUNCTIONS["max"](sp.S.Zero, argument)


FUNCTIONS: Mapping[str, Callable[..., sp.Expr]] = MappingProxyType(
    {
        "exp": sp.exp,
        "log": sp.log,
        "sqrt": _sqrt,
        "sin": sp.sin,
        "cos": sp.cos,
        "tan": sp.tan,
        "sinh": sp.sinh,
        "cosh": sp.cosh,
        "tanh": sp.tanh,
        "asinh": sp.asinh,
        "atan": sp.atan,
        "erf": sp.erf,
        "abs": _unevaluated(sp.Abs),
        "sign": _unevaluated(sp.sign),
        "max": _unevaluated(sp.Max),
        "min": _unevaluated(sp.Min),
        "relu": _relu,
    }
)
CONSTANTS: Mapping[str, sp.Expr] = MappingProxyType({"pi": sp.pi})
RESERVED = frozenset(FUNCTIONS) | frozenset(CONSTANTS)
_SEVERAL = ("max", "min")  # these take two or more arguments, all others take one

_HYPERBOLIC = ("sinh", "cosh", "tanh")

NAMES: Mapping[type[sp.Expr], str] = MappingProxyType(
    {
        **{function: function.__name__ for function in NUMERIC if issubclass(function, sp.Function)},
        sp.Abs: "abs",
        sp.Max: "max",
        sp.Min: "min",
    }
)
_EXPONENTS = f"numbers in exponents between -{MAX_EXPONENT} and {MAX_EXPONENT}"
ALLOWED = f"numbers, + - * / **, parentheses, the variables, pi, and calls of {', '.join(FUNCTIONS)}"


# --- reading -------------------------------------------------------------------------------------


def parse(text: str, variables: Variables, *, what: str) -> sp.Expr:
    """The sympy expression that an arithmetic text means; decimals are read exactly, as rationals.

    variables
        What each name stands for.  A tuple must be indexed in the text, counted from 1: ``z[2]``.
    what
        How errors name the text.

    Raises :class:`~smisym.base.errors.InputError` for whatever is not whitelisted arithmetic, exceeds a limit of this
    module, or has a part that is a complex, infinite or undefined number.
    """
    if not isinstance(text, str):
        raise InputError(what, text, "a text", "write the expression as a text in quotes")
    if len(text) > MAX_LENGTH:
        raise InputError(what, f"{len(text)} characters", f"at most {MAX_LENGTH} characters", "shorten the expression")
    line = " ".join(text.split())  # a text may run over several lines
    try:
        return _Reader(line, variables, what).read()
    except RecursionError:
        raise InputError(what, line, f"at most {MAX_DEPTH} levels of nesting", "simplify the expression") from None
    except InputError:
        raise
    except (ArithmeticError, TypeError, ValueError, NotImplementedError):  # sympy gave up deciding a sign
        raise InputError(what, line, "numbers that sympy can compute with", "write constants as decimals") from None


class _Reader:
    """One pass over one text."""

    def __init__(self, text: str, variables: Variables, what: str) -> None:
        self.text = text
        self.variables = variables
        self.what = what

    def read(self) -> sp.Expr:
        tree = self.tree()
        nodes = sum(isinstance(node, ast.expr) for node in ast.walk(tree))
        if nodes > MAX_NODES:
            raise InputError(self.what, f"{nodes} terms", f"at most {MAX_NODES} terms", "shorten the expression")
        made = self.node(tree, 0)
        for part in sp.preorder_traversal(made):  # sympy may have made constants that stand nowhere in the text
            if part.is_number:
                self.check_constant(part, tree)
        return made

    def tree(self) -> ast.expr:
        allowed = "arithmetic such as 2*z1 + relu(z2)**2 on one line"
        if "#" in self.text:
            raise InputError(self.what, self.text, "an expression without comments", "remove # and what follows it")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python warns of "1if"; whatever it says, the node is refused below
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            place = f"at character {error.offset}: " if error.offset else ""
            raise InputError(self.what, self.text, allowed, f"mend it: {place}{error.msg}") from None
        except (ValueError, MemoryError):  # null bytes and lone surrogates; the parser's stack is full
            raise InputError(self.what, self.text, allowed, "write plain characters and fewer brackets") from None

    def node(self, node: ast.expr, depth: int) -> sp.Expr:
        if depth > MAX_DEPTH:
            self.refuse(node, f"at most {MAX_DEPTH} levels of nesting", "simplify the expression")
        match node:
            case ast.Constant():
                made = self.number(node)
            case ast.Name():
                made = self.name(node)
            case ast.Subscript():
                made = self.indexed(node)
            case ast.Call():
                made = self.call(node, depth)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                made = sp.Add(*self.terms(node, depth))
            case ast.BinOp(op=ast.Mult() | ast.Div()) | ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                made = sp.Mul(*self.factors(node, depth))
            case ast.BinOp(op=ast.Pow()):
                made = self.power(node, depth)
            case _:
                power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor)
                self.refuse(node, ALLOWED, "write ** for powers" if power else "write it as arithmetic")
        self.check(made, node)
        return made

    def terms(self, node: ast.expr, depth: int) -> list[sp.Expr]:
        """Terms of a sum.  Together, because a long sum is a deep tree of pairs but no deep nesting."""
        later = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            # The sign joins the factors of its term: -(2*(x + 1)*y) must not distribute over x + 1.
            sign = [sp.S.NegativeOne] if isinstance(node.op, ast.Sub) else []
            later.append(sp.Mul(*sign, *self.factors(node.right, depth)))
            node = node.left
        return [self.node(node, depth + 1), *reversed(later)]

    def factors(self, node: ast.expr, depth: int) -> list[sp.Expr]:
        """Factors of a product, quotient or signed term.

        Together, because sympy distributes a number over a sum in 2*(x + 1) but not in 2*(x + 1)*y.
        """
        later: list[list[sp.Expr]] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            right = self.factors(node.right, depth)
            if isinstance(node.op, ast.Div):
                right = [self.inverse(factor, node) for factor in right]
            later.append(right)
            node = node.left
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            sign = [sp.S.NegativeOne] if isinstance(node.op, ast.USub) else []
            first = [*sign, *self.factors(node.operand, depth)]
        else:
            first = [self.node(node, depth + 1)]
        return [*first, *(factor for group in reversed(later) for factor in group)]

    def inverse(self, divisor: sp.Expr, node: ast.expr) -> sp.Expr:
        if divisor == 0:
            self.refuse(node, "a divisor other than 0", "remove the division by zero")
        return _power(divisor, sp.S.NegativeOne)

    def power(self, node: ast.BinOp, depth: int) -> sp.Expr:
        base, exponent = self.node(node.left, depth + 1), self.node(node.right, depth + 1)
        if exponent.is_number and abs(evaluate(exponent, {})) > MAX_EXPONENT:
            self.refuse(node, _EXPONENTS, "lower the power")
        # exp(a*x)**(log(2)/x) is 2**a in sympy: there the numbers in the base are exponents too.
        merged = [base] if base.has(sp.exp) and exponent.has(sp.log) else []
        inner = [power.exp for expr in merged for power in expr.atoms(sp.exp)]
        self.check_exponents([exponent, *inner], node)
        return _power(base, exponent)

    def call(self, node: ast.Call, depth: int) -> sp.Expr:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name is None or name not in FUNCTIONS:
            if name in self.variables:
                self.refuse(node, ALLOWED, f"write {name}*(...) for a product, {name}[...] for an entry")
            self.refuse(node, f"calls of {', '.join(FUNCTIONS)}", _meant(name or "", FUNCTIONS))
        several = name in _SEVERAL
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if node.keywords or starred or (len(node.args) < 2 if several else len(node.args) != 1):
            count = "two or more arguments" if several else "one argument"
            self.refuse(node, f"{name} with {count}, without keywords", f"give {name} {count}")
        arguments = [self.node(argument, depth + 1) for argument in node.args]
        if name == "exp":  # exp(n*log(x)) becomes x**n
            self.check_exponents(_logarithmic(arguments[0]), node)
        if name in _HYPERBOLIC and _expanded(arguments[0]) > MAX_EXPANDED and not _is_real(arguments[0]):
            allowed = f"arguments of {name} that are surely real, or have few terms when multiplied out"
            self.refuse(
                node, allowed, "keep divisors and arguments of log, sqrt and powers positive, or lower the powers"
            )
        made = FUNCTIONS[name](*arguments)
        if any(type(part) not in NAMES for part in made.atoms(Application)):  # tan(x + pi/2) becomes -cot(x)
            return FUNCTIONS[name](*arguments, evaluate=False)
        return made

    def name(self, node: ast.Name) -> sp.Expr:
        name = node.id
        if name in self.variables:
            value = self.variables[name]
            if isinstance(value, tuple):
                self.refuse(node, f"{name}[1] to {name}[{len(value)}]", f"say which entry of {name}: {name}[1]")
            return value
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in FUNCTIONS:
            self.refuse(node, f"{name} with its argument", f"write {name}(...)")
        allowed = ", ".join([listing(self.variables), *CONSTANTS, *FUNCTIONS])
        self.refuse(node, allowed, _meant(name, self.variables))

    def indexed(self, node: ast.Subscript) -> sp.Expr:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name not in self.variables:
            self.refuse(node, f"entries of {listing(self.variables)}", _meant(name, self.variables))
        value = self.variables[name]
        if not isinstance(value, tuple):
            self.refuse(node, f"{name} without an index", f"write {name}")
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        # bool is an int in Python; as an index it is a slip.
        if isinstance(index, bool) or not isinstance(index, int) or not 1 <= index <= len(value):
            self.refuse(node, f"{name}[1] to {name}[{len(value)}]", "give the index as a whole number, counted from 1")
        return value[index - 1]

    def number(self, node: ast.Constant) -> sp.Expr:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(node, ALLOWED, "write numbers as digits, without quotes")
        if isinstance(value, int):
            return sp.Integer(value)
        digits = self.segment(node)
        # By the float first: Fraction("1e999999999") would compute all its digits.
        zero = not any(digit in "123456789" for digit in digits.lower().partition("e")[0])
        if zero:
            return sp.S.Zero
        if value == 0 or not math.isfinite(value):
            self.refuse(node, "numbers between 1e-300 and 1e300", "rescale the variables")
        exact = Fraction(digits)
        return sp.Rational(exact.numerator, exact.denominator)

    def check(self, expr: sp.Expr, node: ast.expr) -> None:
        """Refuse what must not enter a larger expression."""
        if expr.has(sp.I, sp.nan, sp.zoo, sp.oo, -sp.oo):
            self.refuse(node, "real and finite numbers", "remove what is complex, infinite or undefined")
        if any(is_huge(number) for number in expr.atoms(sp.Rational)):
            self.refuse(node, "numbers between 1e-300 and 1e300, with at most 300 digits", "rescale the variables")
        self.check_exponents([power.exp for power in expr.atoms(sp.Pow)], node)
        for power in expr.atoms(sp.exp):
            self.check_exponents(_logarithmic(power.exp), node)
        if expr.is_number:
            self.check_constant(expr, node)

    def check_constant(self, expr: sp.Expr, node: ast.expr) -> None:
        if sum(1 for _ in sp.preorder_traversal(expr)) > MAX_CONSTANT:
            self.refuse(node, "shorter constants", "write the value of this constant as a decimal number")
        value = evaluate(expr, {})
        if not np.isfinite(value) or (value == 0 and expr != 0):
            self.refuse(node, "real and finite numbers", "remove what is complex, infinite, undefined or vanishing")

    def check_exponents(self, exponents: Iterable[sp.Expr], node: ast.expr) -> None:
        for exponent in exponents:
            if any(abs(number) > MAX_EXPONENT for number in _numbers(exponent)):
                self.refuse(node, _EXPONENTS, "lower the power")

    def segment(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.text, node) or self.text

    def refuse(self, node: ast.expr, allowed: str, fix: str) -> NoReturn:
        raise InputError(self.what, self.segment(node), allowed, fix)


def is_name(text: str) -> bool:
    """Whether a text can name a variable."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text not in RESERVED


def listing(names: Iterable[str]) -> str:
    """The names for a message, the first of them where there are many."""
    listed = list(names)
    return ", ".join(listed if len(listed) <= 12 else [*listed[:12], "..."])


def _meant(name: str, variables: Iterable[str]) -> str:
    if name.lower() in ("inf", "infinity", "oo", "nan"):
        return "write a finite number"
    # A name of two letters is near to another at one letter in common, but only to one of its own length.
    known = {other for other in {*variables, *RESERVED} if len(other) == len(name) <= 2}
    digits = "0123456789"
    more = name[-1:].isdigit() and any(other.rstrip(digits) == name.rstrip(digits) for other in variables)
    near = difflib.get_close_matches(name, {*variables, *RESERVED}, n=5)
    # Letters that changed places are a slip of the hand.
    near.sort(key=lambda other: sorted(other) != sorted(name))
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not near:
        return "use one of these names"
    other = (
        "" if name in {one.rstrip("0123456789") for one in variables} else ", or the function that is meant in these"
    )
    return f'write "{near[0]}" if that was meant' + (", or declare one field more" if more else other)


def _numbers(expr: sp.Expr) -> list[sp.Rational]:
    """Rationals in an expression, other than those inside functions."""
    if expr.is_Rational:
        return [expr]
    if isinstance(expr, sp.Add | sp.Mul | sp.Pow):
        return [number for argument in expr.args for number in _numbers(argument)]
    return []


def is_huge(number: sp.Rational) -> bool:
    return max(number.p.bit_length(), number.q.bit_length()) > MAX_BITS


def _is_real(expr: sp.Expr) -> bool:
    """Whether sympy is sure that every part is real; 1/x is not, for it may be infinite."""
    return all(part.is_extended_real for part in sp.preorder_traversal(expr))


def _expanded(expr: sp.Expr) -> int:
    """How long an expression may become when it is multiplied out: terms, and functions and what is in them."""
    counts = [_expanded(argument) for argument in expr.args]
    if expr.is_Mul:
        return math.prod(counts)
    if expr.is_Pow and expr.exp.is_Rational:
        power = math.floor(abs(expr.exp)) or 1
        return math.comb(counts[0] + power - 1, power)
    if isinstance(expr, sp.sinh | sp.cosh | sp.tanh):
        return 4 * counts[0]  # each level of these splits what is in it into real and imaginary parts again
    return sum(counts) if expr.is_Add else 1 + sum(counts)


def _logarithmic(exponent: sp.Expr) -> list[sp.Expr]:
    """Terms of an exponent of e that have a logarithm: sympy may turn them into powers."""
    return [term for term in sp.Add.make_args(exponent) if term.has(sp.log)]


# --- numbers -------------------------------------------------------------------------------------
