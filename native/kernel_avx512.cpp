#include <immintrin.h>

#include "kernel.h"

#define PATCHTRACE_VECTOR 64
namespace patchtrace {
namespace {
#include "vector.inl"

#include "softmax.inl"

#include "pictures.inl"

#include "tables.inl"

#include "kernel.inl"
}  // namespace

extern const Kernel avx512_kernel{"avx512", scratch_bytes, query_bytes, prepare, compare, share};
}  // namespace patchtrace
