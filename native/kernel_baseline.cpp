#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernel.h"

#define PATCHTRACE_VECTOR 16
namespace patchtrace {
namespace {
#include "vector.inl"

#include "softmax.inl"

#include "pictures.inl"

#include "tables.inl"

#include "kernel.inl"
}  // namespace

extern const Kernel baseline_kernel{"baseline", scratch_bytes, query_bytes, prepare, compare, share};
}  // namespace patchtrace
