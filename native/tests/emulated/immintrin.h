// What kernel_avx512.cpp uses of the real header, in plain C++. With this in its place, its 64-byte vectors and all that
// follows from their width run on a processor without them.
#pragma once

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef unsigned short __mmask16;
typedef unsigned char __mmask8;
enum { _CMP_GT_OQ };

inline __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int) {
    unsigned lanes = 0;
    for (int i = 0; i < 16; ++i) lanes |= unsigned(a[i] > b[i]) << i;
    return __mmask16(lanes);
}

inline __m512 _mm512_maskz_compress_ps(__mmask16 lanes, __m512 v) {
    __m512 packed{};
    for (int i = 0, next = 0; i < 16; ++i)
        if (lanes >> i & 1) packed[next++] = v[i];
    return packed;
}

inline void _mm512_storeu_ps(float* out, __m512 v) { __builtin_memcpy(out, &v, sizeof v); }

inline void _mm512_mask_storeu_ps(float* out, __mmask16 lanes, __m512 v) {
    for (int i = 0; i < 16; ++i)
        if (lanes >> i & 1) out[i] = v[i];
}

inline void _mm512_mask_storeu_pd(double* out, __mmask8 lanes, __m512d v) {
    for (int i = 0; i < 8; ++i)
        if (lanes >> i & 1) out[i] = v[i];
}
