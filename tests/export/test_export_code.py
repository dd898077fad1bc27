"""Modules that leave the house: in another process that finds no smisym, against the channel they were written from."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES, FAMILIES, KINDS, compiled

import smisym
from smisym import Architecture, Attention, InputError, Model
from smisym.export.assembling import plan_for
from smisym.export.functions import bisected

# Nothing but numpy and the standard library can be imported there.
HIDDEN = """
import sys
sys.modules.update(dict.fromkeys(("smisym", "scipy", "sympy", "numba", "mpmath")))
"""
LOADED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("denoiser", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""
ASKED = """
import numpy as np
given = dict(np.load(sys.argv[2]))
how = {"log_ratios": bool(given.pop("log_ratios")), "rtol": float(given.pop("rtol")) or module.RTOL}
found = module.moments(**given, cov=True, **how)
np.savez(sys.argv[3], **found._asdict())
"""
TESTED = "sys.exit(0 if module.self_test() else 1)"
EVERY = {name: case.architecture for name, case in CASES.items()} | {n: f.declared for n, f in FAMILIES.items()}
# Rows that cannot be written, and a word of the reason.
REFUSED = {
    "p-hardmax-causal": "discrete",
    "p-hardmax": "discrete",
    "p-split-hardmax": "discrete",
    "curved-cell": "discrete",
    "sequence-two-T3": "numerically",
    "sequence-two-T4": "numerically",
    "heads-sum-T3": "numerically",
    "no-inverse": "numerically",
    "extensive-own": "numerically",
    "extensive-hardmax": "discrete",
}
WRITTEN = sorted(set(EVERY) - set(REFUSED))
QUICK = ("L2-T2", "untied-T2", "noise")


def free_dimensions(name: str) -> int:
    return CASES[name].free_dimensions if name in CASES else FAMILIES[name].free


# Of every family the row with the fewest dimensions, the first one in the table where several have them.
EASIEST = {
    kind: min((name for name in EVERY if name not in REFUSED and of(EVERY[name])), key=free_dimensions)
    for kind, of in KINDS.items()
}


def alone(program: str, *arguments: Any, python: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs ``program`` on a module: by this Python, in which all else is hidden, or by another one as it is."""
    text = LOADED + program if python else HIDDEN + LOADED + program
    command = [str(python or sys.executable), "-I", "-W", "error", "-c", text, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def written(model: Model, folder: Path) -> Path:
    path = folder / "denoiser.py"
    path.write_text(smisym.export_code(model))
    return path


def cavity(model: Model, samples: int, overlap: float = 0.5) -> tuple[np.ndarray, np.ndarray, Any]:
    """(omega, V, outputs), rows coupled a little."""
    rng, P = np.random.default_rng(5), model.fields
    V = (1 - overlap) * (np.eye(P) + 0.1 * (np.ones((P, P)) - np.eye(P)))
    omega = np.sqrt(overlap) * rng.standard_normal((samples, P, model.tokens))
    Z = omega + np.linalg.cholesky(V) @ rng.standard_normal(omega.shape)
    return omega, V, model.channel.sample(Z, rng)


# Many parameters: a module, what it is asked, and by whom.
def asked(
    path: Path,
    model: Model,
    omega: np.ndarray,
    V: np.ndarray,
    observed: Any,
    rtol: float = 0.0,
    python: Path | None = None,
) -> Any:
    """What the module gives, in its own process."""
    ratios = observed.log_ratios is not None
    y = observed.log_ratios if ratios else observed.y
    given, found = path.parent / "given.npz", path.parent / "found.npz"
    np.savez(given, y=y, omega=omega, V=V, log_ratios=ratios, rtol=rtol)
    done = alone(ASKED, path, given, found, python=python)
    assert done.returncode == 0, done.stderr
    return dict(np.load(found))


def held(name: str, path: Path, samples: int, python: Path | None = None) -> None:
    """g_out, log-partition and derivative of a module against the channel, within the errors of both."""
    model = compiled(name)
    plan = plan_for(model)
    omega, V, observed = cavity(model, samples)
    found = asked(path, model, omega, V, observed, python=python)
    rtol = {0: 1e-12, 1: 1e-10, 2: 1e-10, 3: 1e-4}.get(plan.dim, model.channel.plan.single)
    known = model.channel.moments(observed, omega, V, cov=True, rtol=rtol)
    gap = np.sqrt(np.einsum("spt,pq,sqt->s", found["g"] - known.g, V, found["g"] - known.g))
    # A module may say that it does not know: of a sequence of two layers posteriors have long tails.
    there = np.isfinite(found["error"])
    assert there.all() or name == "sequence-two-noiseless"
    if plan.sampled:
        allowed = 4 * found["error"] + known.bound
    else:
        allowed = found["error"] + known.bound + 1e-10
        assert (found["error"][known.error <= rtol] <= 1e-4).all()
        scale = 1 + np.abs(known.dg).max()
        assert there.any() and np.abs(found["dg"] - known.dg)[there].max() <= 1e2 * allowed[there].max() * scale
        assert np.abs(found["log_partition"] - known.log_partition)[there].max() <= 1e2 * allowed[there].max() + 1e-9
    assert (gap <= allowed)[there].all(), (gap, allowed)
    if name.startswith("L2-T2"):
        # Without a skip the channel itself ends far from what it is asked for.
        told = known.error <= rtol
        assert np.abs(found["g"] - known.g)[told].max(initial=0.0) <= 1e-8 and (told.all() or name == "L2-T2-c0")


@pytest.mark.parametrize("name", QUICK)
def test_a_module_gives_what_the_channel_gives(name: str, tmp_path: Path) -> None:
    held(name, written(compiled(name), tmp_path), samples=6)


@pytest.mark.parametrize("name", sorted(set(EASIEST.values())))
def test_a_module_of_every_family_has_the_network_and_needs_numpy_alone(name: str) -> None:
    model = compiled(name)
    text = smisym.export_code(model)
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    of = {node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imported}
    assert {module.split(".")[0] for module in of} <= sys.stdlib_module_names | {"numpy"}
    module = types.ModuleType("denoiser")
    # A dataclass looks for the module that it stands in.
    sys.modules["denoiser"] = module
    try:
        exec(compile(text, "denoiser.py", "exec"), module.__dict__)
    finally:
        del sys.modules["denoiser"]
    if not hasattr(module, "network"):
        assert plan_for(model).sampled, name
        return
    Z = np.random.default_rng(2).standard_normal((5, model.fields, model.tokens))
    known = model.link.raw(Z).reshape(5, -1)
    found = np.stack(np.broadcast_arrays(*module.network(*Z.reshape(5, -1).T), known[:, 0])[:-1], axis=1)
    finite = np.isfinite(known)
    assert np.array_equal(finite, np.isfinite(found)) and np.allclose(found[finite], known[finite], rtol=1e-12)


def test_narrow_posteriors_have_all_their_maxima(two_layers: Model, tmp_path: Path) -> None:
    """The last layer is known to 1 %: solutions for the first one are points far from one another."""
    rng, V = np.random.default_rng(1), np.diag([0.5, 1e-4])
    omega = np.sqrt(1 - np.diag(V))[:, None] * rng.standard_normal((48, 2, 2))
    observed = two_layers.channel.sample(omega + np.sqrt(V) @ rng.standard_normal((48, 2, 2)), rng)
    found = asked(written(two_layers, tmp_path), two_layers, omega, V, observed, rtol=1e-6)
    known = two_layers.channel.moments(observed, omega, V, rtol=1e-8)
    gap = np.sqrt(np.einsum("spt,pq,sqt->s", found["g"] - known.g, V, found["g"] - known.g))
    assert (gap <= found["error"] + known.error + 1e-7).all() and found["error"].max() <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in QUICK])
def test_every_module_gives_what_the_channel_gives(name: str, tmp_path: Path) -> None:
    held(name, written(compiled(name), tmp_path), samples=4)


@pytest.mark.parametrize("name", ["p-hardmax", "sequence-two-T3"])
def test_what_cannot_be_written_is_refused_with_its_reason(name: str) -> None:
    refused(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(REFUSED) - {"p-hardmax", "sequence-two-T3"}))
def test_all_that_cannot_be_written_is_refused(name: str) -> None:
    refused(name)


def refused(name: str) -> None:
    with pytest.raises(InputError) as error:
        smisym.export_code(smisym.compile(EVERY[name]))
    assert REFUSED[name] in str(error.value) and "declare a little noise" in str(error.value)


def test_a_gaussian_sum_and_other_languages_are_refused() -> None:
    layers = (*[Attention(readout=0.1)] * 2, Attention())
    model = smisym.compile(Architecture(2, layers, limit="first_order", statistic="gaussian"))
    with pytest.raises(InputError, match="Gaussian sum"):
        smisym.export_code(model)
    with pytest.raises(InputError, match="python, latex, numba"):
        smisym.export_code(model, "fortran")


@pytest.fixture(scope="module")
def two_layers() -> Model:
    return smisym.compile(EVERY["L2-T2"])


def test_a_module_is_short_and_needs_numpy_alone(two_layers: Model) -> None:
    text = smisym.export_code(two_layers)
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported - set(sys.stdlib_module_names) == {"numpy"}
    assert len(text.splitlines()) <= 720 and max(map(len, text.splitlines())) <= 120
    assert "A_1 = I + softmax(U_1*U_1.T)" in text and "2502.00901" in text and "A1_12" in text


def test_the_same_seed_gives_the_same_bits(two_layers: Model, tmp_path: Path) -> None:
    assert smisym.export_code(two_layers, seed=3) == smisym.export_code(two_layers, seed=3)
    path, given = written(two_layers, tmp_path), cavity(two_layers, 3)
    first, again = (asked(path, two_layers, *given, rtol=1e-3) for _ in range(2))
    assert all((first[name] == again[name]).all() for name in ("g", "dg", "error", "log_partition"))


# A sheet that is lost, a weight that is left out, a mixing that is transposed.
FAULTS = {
    "none": ("FIELDS", "FIELDS"),
    "sheet": ("[-h2_1, -h2_2]", "[h2_1, h2_2]"),
    "weight": ("log_weight = [-log_det_A1]", "log_weight = [0.0]"),
    "mixing": ("(A1_22 * u_1) - (A1_12 * u_2)", "(A1_22 * u_1) - (A1_21 * u_2)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_self_test_passes_and_sees_faults(two_layers: Model, fault: str, tmp_path: Path) -> None:
    path = written(two_layers, tmp_path)
    right, wrong = FAULTS[fault]
    assert right in path.read_text()
    # Fewer draws: it is the references that see these.
    path.write_text(path.read_text().replace(right, wrong).replace("NISHIMORI = 256", "NISHIMORI = 32"))
    done = alone(TESTED, path)
    assert (done.returncode == 0) == (fault == "none"), done.stdout + done.stderr
    assert ("all holds" in done.stdout) == (fault == "none")


WRONG = """
import numpy as np
y = np.array([[[0.7, 0.3], [0.2, 0.8]]])
omega, V = np.zeros((1, 2, 2)), np.eye(2)
assert module.g_out(y, omega, V).shape == (1, 2, 2) and module.dg_out(y, omega, V, rtol=1e-3).shape == (1, 2, 2, 2, 2)
for wrong in (
    (np.array([[[0.3, 0.7], [0.6, 0.4]]]), omega, V),
    (y + 0.1, omega, V),
    (y, omega[0], V),
    (y, omega, -V),
    (y, np.full_like(omega, np.nan), V),
    (y, omega, np.eye(3)),
    (y, omega, V + [[0, 0.1], [0, 0]]),
    (y + 0j, omega, V),
):
    try:
        module.moments(*wrong)
    except ValueError as error:
        print(error)
    else:
        sys.exit("no error")
"""


def test_bad_input_is_an_error_of_the_module(two_layers: Model, tmp_path: Path) -> None:
    done = alone(WRONG, written(two_layers, tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "no output of this noiseless network" in lines[0] and "sum to one" in lines[1]
    assert "positive definite" in lines[3] and "finite" in lines[4] and "shape of omega" in lines[2]
    assert "shape of V: (3, 3); allowed: (2, 2)" in lines[5]
    assert "symmetric" in lines[6] and "real" in lines[7]


@pytest.mark.parametrize(("link", "y"), [("exp(z1)", -1.0), ("abs(z1)", -0.5)])
def test_outputs_that_no_fields_give_are_refused(link: str, y: float, tmp_path: Path) -> None:
    path = written(smisym.compile(smisym.SMI(link, 1)), tmp_path)
    done = alone(f"import numpy as np\nmodule.moments(np.full((1, 1), {y}), np.zeros((1, 1, 1)), np.eye(1))", path)
    assert done.returncode and "no output of this noiseless network" in done.stderr


MANY = {
    "tied, rank 2, T = 2": Architecture(2, (Attention(rank=2),)),
    "tied, rank 2, T = 3": Architecture(3, (Attention(rank=2),)),
    "untied, T = 3": Architecture(3, (Attention(tied=False),)),
    "two layers, skip 0.3": Architecture(2, (Attention(skip=0.3), Attention())),
    "tanh(z1) + z2**2": smisym.SMI("tanh(z1) + z2**2", 2),
    "z1**2 - 2*z2**2": smisym.SMI("z1**2 - 2*z2**2", 2),
    "z1**2 + z2**2": smisym.SMI("z1**2 + z2**2", 2),
}


@pytest.mark.parametrize("name", MANY)
def test_two_integrators_agree_on_many_posteriors_under_narrow_cavities(name: str, tmp_path: Path) -> None:
    """That of the module and that of the channel have no line in common: what one passes by, the other finds.

    The same fields may be on several sheets, of which those that hold a thousandth are the narrower ones; maxima may
    lie at the edge of a block of nodes.
    """
    model, samples = smisym.compile(MANY[name]), 200
    P, T = model.fields, model.tokens
    for variance in (0.3, 1e-2, 1e-4):
        rng, V = np.random.default_rng(44), variance * np.eye(P)
        omega = np.sqrt(1 - variance) * rng.standard_normal((samples, P, T))
        observed = model.channel.sample(omega + np.sqrt(variance) * rng.standard_normal((samples, P, T)), rng)
        found = asked(written(model, tmp_path), model, omega, V, observed, rtol=1e-6)
        known = model.channel.moments(observed, omega, V)
        gap = np.sqrt(np.einsum("spt,spt->s", found["g"] - known.g, found["g"] - known.g) * variance)
        there = np.isfinite(found["error"])
        assert there.mean() > 0.95 and np.quantile(found["error"][there], 0.9) <= 1e-6
        # What is not resolved by the channel is sampled: a standard error.
        assert (gap[there] <= 4 * (found["error"] + known.error)[there] + 1e-8).all()


def test_a_module_whose_weight_has_a_kink_tests_itself(tmp_path: Path) -> None:
    done = alone(TESTED, written(smisym.compile(smisym.SMI("z1/(z2 - 0.4)", 2)), tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_outputs_and_log_ratios_say_the_same(two_layers: Model, tmp_path: Path) -> None:
    path, (omega, V, observed) = written(two_layers, tmp_path), cavity(two_layers, 4)
    rounded = smisym.Observation(observed.y, None)
    first, second = (asked(path, two_layers, omega, V, o) for o in (observed, rounded))
    assert np.abs(first["g"] - second["g"]).max() <= 1e-6


def test_the_formulas_alone_are_those_of_the_trail(two_layers: Model) -> None:
    text = smisym.export_code(two_layers, "latex")
    count = sum(len(step.formulas) for step in smisym.derive(two_layers, checks=False))
    assert text.count(r"\begin{equation}") == text.count(r"\end{equation}") == count > 5
    assert r"\documentclass" not in text and "% The fields that give this output" in text


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment in which numpy alone is installed."""
    home = tmp_path_factory.mktemp("alone") / "fresh"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "numpy"], check=True, capture_output=True)
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True
    )
    assert {line.split("==")[0] for line in listed.stdout.split()} <= {"numpy", "pip", "setuptools"}, listed.stdout
    return python


@pytest.mark.slow
def test_a_module_tests_itself_where_numpy_alone_is_installed(fresh: Path, two_layers: Model, tmp_path: Path) -> None:
    done = subprocess.run([fresh, "-I", written(two_layers, tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "all holds" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(EASIEST.values())))
def test_every_family_where_numpy_alone_is_installed(name: str, fresh: Path, tmp_path: Path) -> None:
    """From a file to a module by the command, and the module run by a Python that has nothing else."""
    network, path = tmp_path / "network.toml", tmp_path / "denoiser.py"
    smisym.save(EVERY[name], network)
    command = [sys.executable, "-m", "smisym", "derive", network, "--code", "python", "-o", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    held(name, path, 4, fresh)


def test_scores_are_found_again_by_bisection_or_refused() -> None:
    """As it stands in smisym, where the activation is the score itself; modules have one of their own."""
    y = np.array([-1e9, -0.3, 0.0, 1e-9, 0.5, 7.0])
    np.testing.assert_allclose(bisected(y), y, rtol=1e-14, atol=1e-28)
    with pytest.raises(ValueError, match="beyond the end of the activation's range"):
        bisected(np.array([0.5, 1e13]))
