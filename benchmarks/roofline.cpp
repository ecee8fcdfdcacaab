// What the machine can do at best, to hold the kernel against: vector multiply-adds a second, and bytes a second out of
// and into the second-level cache. Prints JSON. Built and run by benchmarks/engine.py.

#include <omp.h>

#include <cstdio>
#include <cstdlib>

typedef float V __attribute__((vector_size(VECTOR)));

constexpr int CHAINS = 10;  // enough independent sums to fill the pipelines

double multiply_adds(int threads) {
    constexpr long ROUNDS = 40'000'000;
    const double begin = omp_get_wtime();
#pragma omp parallel num_threads(threads)
    {
        V sums[CHAINS];
        for (int i = 0; i < CHAINS; ++i) sums[i] = V{} + float(i);
        const V factor = V{} + 0.999f, term = V{} + 1e-3f;
        for (long round = 0; round < ROUNDS; ++round) {
            for (int i = 0; i < CHAINS; ++i) sums[i] = sums[i] * factor + term;
            asm volatile("" ::"v"(sums[0]), "v"(sums[CHAINS - 1]));
        }
        V sum = sums[0];
        for (int i = 1; i < CHAINS; ++i) sum += sums[i];
        volatile float kept = sum[0];
        (void)kept;
    }
    return double(ROUNDS) * CHAINS * threads / (omp_get_wtime() - begin);
}

double cache_bytes(int threads, std::size_t bytes, bool write) {
    constexpr int ROUNDS = 20'000;
    const double begin = omp_get_wtime();
#pragma omp parallel num_threads(threads)
    {
        V* memory = static_cast<V*>(std::aligned_alloc(2 << 20, 2 << 20));
        const std::size_t count = bytes / sizeof(V);
        for (std::size_t i = 0; i < count; ++i) memory[i] = V{} + 1.0f;
        V sums[8]{};
        for (int round = 0; round < ROUNDS; ++round) {
            for (std::size_t i = 0; i + 8 <= count; i += 8)
                for (int u = 0; u < 8; ++u) {
                    if (write) memory[i + u] = sums[u];
                    else sums[u] += memory[i + u];
                }
            asm volatile("" ::"r"(memory) : "memory");
        }
        volatile float kept = sums[0][0] + sums[7][0];
        (void)kept;
        std::free(memory);
    }
    return double(ROUNDS) * bytes * threads / (omp_get_wtime() - begin);
}

int main() {
    std::printf("{\"lanes\": %d, ", int(sizeof(V) / sizeof(float)));
    for (int threads = 1; threads <= 2; ++threads)
        std::printf("\"fma_%d\": %.4g, \"read_%d\": %.4g, \"write_%d\": %.4g%s", threads, multiply_adds(threads), threads,
                    cache_bytes(threads, 384 << 10, false), threads, cache_bytes(threads, 384 << 10, true),
                    threads == 1 ? ", " : "}\n");
}
