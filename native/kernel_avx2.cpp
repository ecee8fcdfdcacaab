#include <immintrin.h>

#include "kernel.h"

#define PATCHTRACE_VECTOR 32
namespace patchtrace {
namespace {
#include "vector.inl"

#include "softmax.inl"

#include "pictures.inl"

#include "tables.inl"

#include "kernel.inl"
}  // namespace

extern const Kernel avx2_kernel{"avx2", scratch_bytes, query_bytes, prepare, compare, share};
}  // namespace patchtrace
