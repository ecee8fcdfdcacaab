// Vectors of one instruction set: as wide as it has them, in the compiler's own vector types, so that one text serves
// all. Included once by each kernel_*.cpp, inside an unnamed namespace.

// The stages of the work keep their names in a profile; each is far longer than a call.
#define STAGE __attribute__((noinline))

template <class T> struct Lanes;
template <> struct Lanes<float> {
    typedef float V __attribute__((vector_size(PATCHTRACE_VECTOR)));
    typedef float U __attribute__((vector_size(PATCHTRACE_VECTOR), aligned(4), may_alias));
};
template <> struct Lanes<double> {
    typedef double V __attribute__((vector_size(PATCHTRACE_VECTOR)));
    typedef double U __attribute__((vector_size(PATCHTRACE_VECTOR), aligned(8), may_alias));
};
template <class T> using Vec = typename Lanes<T>::V;
template <class T> constexpr int WIDTH = PATCHTRACE_VECTOR / int(sizeof(T));

typedef Vec<float> F;
typedef int I __attribute__((vector_size(PATCHTRACE_VECTOR)));
constexpr int W = WIDTH<float>;
constexpr float NOTHING = -__builtin_inff();

// Vectors for which loops over all partners have registers at a time.
constexpr int AT_ONCE = PATCHTRACE_VECTOR == 64 ? 2 : 1;
// Channels whose pixels of two vectors stay in registers.
constexpr int MOST_CHANNELS = PATCHTRACE_VECTOR == 64 ? 8 : 4;

// A number as a type, for a template that is chosen at run time.
template <int N> struct Number {
    static constexpr int value = N;
};

// The same address, of which the compiler knows nothing: it then keeps this one in a register, and not one more for
// each step from it, of which there are more than registers.
template <class P> inline P* opaque(P* p) {
    asm("" : "+r"(p));
    return p;
}

template <class T> inline Vec<T> load(const T* p) { return *reinterpret_cast<const typename Lanes<T>::U*>(p); }
template <class T> inline void store(T* p, Vec<T> v) { *reinterpret_cast<typename Lanes<T>::U*>(p) = v; }
template <class T> inline Vec<T> all(T x) { return Vec<T>{} + x; }
template <class V> inline V larger(V a, V b) { return a > b ? a : b; }
inline int at_least(int a, int b) { return a > b ? a : b; }
inline int at_most(long a, int b) { return a < b ? int(a) : b; }

// Halves and halves again, down to one number.
template <class V, class Join> inline auto joined(V v, Join join) {
    constexpr int COUNT = sizeof(V) / sizeof(v[0]);
    if constexpr (COUNT == 2) {
        return join(v[0], v[1]);
    } else {
        typedef decltype(v[0] + v[0]) Half __attribute__((vector_size(sizeof(V) / 2)));
        Half halves[2];
        __builtin_memcpy(halves, &v, sizeof v);
        return joined(join(halves[0], halves[1]), join);
    }
}

template <class T> inline T largest(Vec<T> v) {
    return joined(v, [](auto a, auto b) { return a > b ? a : b; });
}
template <class V> inline auto sum(V v) {
    return joined(v, [](auto a, auto b) { return a + b; });
}

// W logits less the largest one, as float: only the difference needs to fit.
inline F below(const float* p, float peak) { return load(p) - peak; }
inline F below(const double* p, double peak) {
    F d;
    for (int i = 0; i < W; ++i) d[i] = float(p[i] - peak);
    return d;
}

// Logits are counted in powers of two, which spares the exponential a multiplication and a remainder.
constexpr double BINARY = 1.4426950408889634;  // 1 / ln 2
constexpr float FAR = -125.0f;                 // 2^FAR is as good as nothing

// 2^x to about 1e-7 of itself, for x from FAR to 0.
inline F power(F x) {
    const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, which is then in the low bits
    const F whole = x + shift;
    const F rest = x - (whole - shift);
    F p = rest * 1.3276472e-3f + 9.6755413e-3f;  // a polynomial with the least largest error on [-1/2, 1/2]
    p = p * rest + 5.5507133e-2f;
    p = p * rest + 2.4022120e-1f;
    p = p * rest + 6.9314697e-1f;
    p = p * rest + 1.0f;
    I bits, exponent;
    __builtin_memcpy(&bits, &p, sizeof bits);
    __builtin_memcpy(&exponent, &whole, sizeof exponent);
    bits += exponent << 23;
    __builtin_memcpy(&p, &bits, sizeof p);
    return p;
}

inline F power_of_any(F x) { return power(larger(x, all(FAR))); }

// Which lanes of v are above the threshold, one bit each; and those lanes, written one after the other.
#if defined(__AVX512F__)
inline unsigned lanes_above(F v, F threshold) {
    return _mm512_cmp_ps_mask(__m512(v), __m512(threshold), _CMP_GT_OQ);
}
inline void keep(F v, unsigned lanes, float* out) {
    _mm512_storeu_ps(out, _mm512_maskz_compress_ps(__mmask16(lanes), __m512(v)));
}
#elif defined(__AVX2__)
struct Order {
    unsigned char lanes[256][8];
    constexpr Order() : lanes() {
        for (int mask = 0; mask < 256; ++mask)
            for (int lane = 0, next = 0; lane < 8; ++lane)
                if (mask >> lane & 1) lanes[mask][next++] = static_cast<unsigned char>(lane);
    }
};
constexpr Order ORDER{};

inline unsigned lanes_above(F v, F threshold) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(__m256(v), __m256(threshold), _CMP_GT_OQ)));
}
inline void keep(F v, unsigned lanes, float* out) {
    const __m128i order = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(ORDER.lanes[lanes]));
    _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(__m256(v), _mm256_cvtepu8_epi32(order)));
}
#else
inline unsigned lanes_above(F v, F threshold) {
#if defined(__SSE2__)
    return static_cast<unsigned>(_mm_movemask_ps(__m128(v > threshold)));
#else
    unsigned lanes = 0;
    for (int i = 0; i < W; ++i) lanes |= unsigned(v[i] > threshold[i]) << i;
    return lanes;
#endif
}
inline void keep(F v, unsigned lanes, float* out) {
    for (int i = 0; i < W; out += lanes >> i++ & 1) *out = v[i];
}
#endif

// Stores the lanes from `first` on; what lies in the places of the others stays.
#if defined(__AVX512F__)
inline unsigned lanes_from(int first) { return first > 0 ? ~0u << at_most(first, W) : ~0u; }
inline void store_from(int first, float* p, Vec<float> v) {
    _mm512_mask_storeu_ps(p, __mmask16(lanes_from(first)), __m512(v));
}
inline void store_from(int first, double* p, Vec<double> v) {
    _mm512_mask_storeu_pd(p, __mmask8(lanes_from(first)), __m512d(v));
}
#else
template <class T> struct Steps {
    T at[2 * WIDTH<T>];
    constexpr Steps() : at() {
        for (int i = WIDTH<T>; i < 2 * WIDTH<T>; ++i) at[i] = 1;
    }
};
template <class T> constexpr Steps<T> STEPS{};

template <class T> inline void store_from(int first, T* p, Vec<T> v) {
    const T* const lanes = STEPS<T>.at + WIDTH<T> - at_most(at_least(first, 0), WIDTH<T>);
    store(p, load(lanes) > T(0) ? v : load(p));
}
#endif

// Whether any of W logits may be above peak + cut.
inline bool any_above(const float* p, float peak, float cut) { return lanes_above(load(p), all(peak + cut)) != 0; }
inline bool any_above(const double* p, double peak, float cut) { return lanes_above(below(p, peak), all(cut)) != 0; }
