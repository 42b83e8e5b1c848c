"""The kind of processor: linear algebra rounds otherwise on another, and a least-squares fit may then take another corner."""

from numpy._core._multiarray_umath import __cpu_features__

#: Whether this is the kind on which the packaged sets were fitted: there they are met byte for byte.
AS_PACKAGED: bool = __cpu_features__["AVX512F"]
