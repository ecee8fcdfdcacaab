// kernel_avx512.cpp for any processor: the same text, compiled for none of its instructions.
#define __AVX512F__ 1
#define avx512_kernel emulated_kernel
#include "../kernel_avx512.cpp"
