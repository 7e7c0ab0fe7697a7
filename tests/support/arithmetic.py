"""The same arithmetic on every x86-64 machine, so that a search replayed there runs the very same
trials.
"""

import platform

ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # small matrices gain nothing from threads
    # One kernel of several that differ in a last digit, on which a choice between equals may turn.
    **(
        {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}
        if platform.machine() == "x86_64"
        else {}
    ),
}
"""To be set before numpy is imported."""
