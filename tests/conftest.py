"""Before numpy is loaded: one thread of linear algebra a process, for matrices are small and processes several."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
