// The inner products of all patch pairs of two pictures, as windowed sums along the diagonals of one table of pixel
// products. A pair costs about as much at any patch size:
//
//   pixels    K(a, b)[i, j] = sum over channels of x[a, i] z[b, j]         rows a, b and columns i, j of the pictures
//   across    S(a, b)[l, m] = sum over e of K(a, b)[l + e w, m + e w]      l, m: first columns of two patches
//   down      G(r, q)[l, m] = sum over d of S(r + d w, q + d w)[l, m]      r, q: first rows of two patches
//
// SHARED windows that follow each other on a diagonal are summed together: what they have in common once, and what
// they have of their own on both sides of it. No sum ever takes a number away again, so nothing drifts: a logit is a
// sum of taps^2 products in a fixed tree, of depth taps at most in each direction.

constexpr int SHARED = 4;  // or 8 across, where a row of S has room for it

// Where the inner products of all patch pairs are kept: [query patch][partner] for interior patches and for those over
// the upper and lower border, the left and right one, and [row][column] for corners, whose partner is at the same place.
struct Store {
    std::size_t inside, row_edges, column_edges, corners;
};

// Sizes of all tables of one comparison, and where they lie in the scratch memory.
template <class T> struct Layout {
    static constexpr int STEP = AT_ONCE * WIDTH<T>;  // partners that are looked at together
    int reach;            // from the first to the last tap of a patch
    int shared;           // windows summed together: fewer where a patch has fewer taps
    int shared_across;
    int spread;           // rows or columns that the last of them lies ahead of the first
    int spread_across;
    int inner_rows;       // pooled rows under interior positions
    int product_vectors;  // vectors in a row of K
    int lead;             // columns before the first one in a row of K, so that the first is aligned
    int product_stride;
    int row_lanes;        // columns of a row of S as it is written, in whole vectors, with what is of no use beside them
    int stride;           // of the rows of S and of all that follows
    bool close;           // what lies beside the columns of a row of S may belong to the row before
    int head;             // room, in whole vectors, for partners ahead of the first
    int group;            // query columns done at a time, so that the tables stay in the cache
    int slots;            // rows a of S tables kept
    int table_rows;       // tables S(a, b) kept for each a
    std::size_t column_stride, slot_stride;  // of the S tables: [slot][query column][b or b - a][stride]
    std::size_t logit_stride;
    int edge_lanes;       // partners of a patch over the border
    int edge_stride, edge_product_stride;  // as those of S and K
    std::size_t middle_stride;  // of the middle pixels of interior patches, from channel to channel

    std::size_t train, plane, norm_sums, spare, norms, edge_norms, products, ring, logits, edge_products, edge_sums,
        kept, pointers, middles, inside_middles, edge_middles, end;
    Store stores[2];            // of the query's pixels and of its noise, in a patchwork
    std::size_t turned;
    int inside_stride, row_edge_stride, column_edge_stride;  // of the logits in a store, from query patch to query patch

    explicit Layout(const Geometry& g) {
        constexpr int V = WIDTH<T>;
        const Axis &rows = g.rows, &columns = g.columns;
        const PictureLayout<T> picture(g);
        const auto whole = [](int count) { return PictureLayout<T>::whole(count); };
        reach = (g.taps - 1) * g.pool;
        shared = shared_across = g.taps >= SHARED ? SHARED : g.taps >= 2 ? 2 : 1;
        if (g.taps >= 8 && whole(columns.inside + 7 * g.pool) == whole(columns.inside + 3 * g.pool)) shared_across = 8;
        spread = (shared - 1) * g.pool;
        spread_across = (shared_across - 1) * g.pool;
        inner_rows = rows.inside + reach;
        row_lanes = whole(columns.inside + spread_across);
        // Rows without a gap leave no lane empty, but nearly all begin in the middle of a vector, and take longer to
        // write: that must be worth it, which it is not for patches so large that few pairs are left.
        stride = whole(columns.inside);
        if (stride - columns.inside >= stride / 8 && g.taps <= columns.inside) stride = columns.inside;
        close = stride < columns.inside + spread_across;
        head = (spread * stride + STEP - 1) / STEP * STEP;
        inside_stride = whole(rows.inside * stride);
        product_vectors = (columns.inside + reach + V - 1) / V;
        lead = whole(spread_across);
        product_stride = lead + whole(at_least(product_vectors * V, row_lanes + reach)) + V;
        slots = g.taps + shared - 1;
        table_rows = at_most(inner_rows, 2 * rows.inside - 1);
        column_stride = std::size_t(whole(table_rows * stride)) + row_lanes + 64 / sizeof(T);  // not a power of two
        const int step = shared_across * g.pool, steps = (columns.inside + step - 1) / step;
        const std::size_t all_bytes = std::size_t(steps) * step * slots * column_stride * sizeof(T);
        const int groups = at_most(steps, int(all_bytes / (g.cache + 1)) + 1);
        group = (steps + groups - 1) / groups * step;
        slot_stride = column_stride * group;
        const std::size_t below = table_rows < inner_rows ? 0 : std::size_t(g.pool) * stride;
        for (int tries = 0; tries < 64 && !rows_apart((slot_stride + below) * sizeof(T)); ++tries)
            slot_stride += 64 / sizeof(T);
        logit_stride = std::size_t(inside_stride) + head + W + 2 * STEP;
        while ((logit_stride + std::size_t(g.pool) * stride) % V) ++logit_stride;  // all are written at whole vectors
        const int longest = at_least(rows.inside, columns.inside), inner = longest + reach;
        edge_lanes = whole(longest) + W;
        const int edge_step = shared * g.pool, edge_columns = (longest + edge_step - 1) / edge_step * edge_step;
        edge_stride = whole(longest + spread);
        edge_product_stride = lead + whole(at_least(inner, edge_stride + reach)) + V;
        middle_stride = std::size_t(inside_stride) + W;

        Places places;
        train = places.take(picture.end, 1);
        plane = places.take(plane_size(g), sizeof(double));
        norm_sums = places.take(std::size_t(picture.height) * picture.width, sizeof(double));
        spare = places.take(std::size_t(rows.positions) * picture.width, sizeof(double));
        norms = places.take(norms_count(), sizeof(T));
        edge_norms = places.take(edge_lanes, sizeof(T));
        products = places.take(std::size_t(group + reach + spread_across) * product_stride, sizeof(T));
        ring = places.take(slots * slot_stride + std::size_t(2 * ring_margin()), sizeof(T));
        logits = places.take(head + std::size_t(shared) * (logit_stride + g.pool * stride) + edge_lanes, sizeof(T));
        edge_products = places.take(std::size_t(edge_columns + reach) * edge_product_stride, sizeof(T));
        edge_sums = places.take(std::size_t(edge_columns) * edge_stride + lead, sizeof(T));
        kept = places.take(std::size_t(inside_stride) + edge_lanes + (UNROLLED + 1) * W, sizeof(float));
        pointers = places.take(slots, sizeof(T*));
        middles = places.take(g.channels * g.patches(), sizeof(float));
        inside_middles = places.take(g.channels * middle_stride, sizeof(float));
        edge_middles = places.take(std::size_t(g.channels) * edge_lanes, sizeof(float));
        row_edge_stride = whole(columns.inside), column_edge_stride = whole(rows.inside);
        for (Store& store : stores) {
            if (!g.patchwork) break;
            store.inside = places.take(std::size_t(rows.inside) * columns.inside * inside_stride, sizeof(T));
            store.row_edges = places.take(std::size_t(rows.edges()) * columns.inside * row_edge_stride, sizeof(T));
            store.column_edges = places.take(std::size_t(columns.edges()) * rows.inside * column_edge_stride, sizeof(T));
            store.corners = places.take(plane_size(g), sizeof(double));
        }
        turned = places.take(g.patchwork ? plane_size(g) : 0, sizeof(double));
        end = places.next;
    }

    // Whether rows of S that are looked up together, one in each slot and so many bytes apart, have places of their own
    // in the first-level cache: that is 4096 bytes, several times.
    bool rows_apart(std::size_t step) const {
        const std::size_t row = at_most(row_lanes * sizeof(T), 4096 / slots);
        for (int e = 1; e < slots; ++e)
            if (e * step % 4096 < row || e * step % 4096 > 4096 - row) return false;
        return true;
    }

    // Around the ring: partners that are not there are looked up in it all the same, and lanes without a column written.
    std::size_t ring_margin() const { return std::size_t(2 * spread + 1) * stride + lead + row_lanes + 2 * STEP; }

    // Norms of all partners, and on both sides of them of those that are not there.
    std::size_t norms_count() const { return std::size_t(2 * head) + inside_stride + 2 * STEP; }
};

// `COUNT` windows of `taps` vectors each, every one a vector further than the one before; vector e is at(e).
// Inlined with a known number of taps it is a row of additions.
template <class T, int COUNT, class At>
__attribute__((always_inline)) inline void windows(int taps, At at, Vec<T> (&out)[COUNT]) {
    Vec<T> common = at(COUNT - 1);
    int e = COUNT;
    if (taps > COUNT + 3) {  // two sums at a time, so that one addition need not wait for the other
        Vec<T> other = at(e++);
        for (; e + 1 < taps; e += 2) common += at(e), other += at(e + 1);
        common += other;
    }
    for (; e < taps; ++e) common += at(e);
    out[COUNT - 1] = common;
    for (int r = COUNT - 2; r >= 0; --r) out[r] = out[r + 1] + at(r);
    if (COUNT > 1) {
        Vec<T> after = at(taps);
        out[1] += after;
        for (int r = 2; r < COUNT; ++r) {
            after += at(taps + r - 1);
            out[r] += after;
        }
    }
}

// K for one row of each picture: `rows` query columns times `VECTORS` vectors of training columns.
// ADD: on top of what is there.
template <class T, int CHANNELS, int VECTORS, bool ADD>
STAGE void pixel_products(const T* x, int x_stride, const T* z, int z_stride, int rows, T* out, int out_stride) {
    Vec<T> train[CHANNELS][VECTORS];
    for (int c = 0; c < CHANNELS; ++c)
        for (int v = 0; v < VECTORS; ++v) train[c][v] = load(z + c * z_stride + v * WIDTH<T>);
    for (int i = 0; i < rows; ++i, out += out_stride) {
        Vec<T> sums[VECTORS];
        for (int v = 0; v < VECTORS; ++v)
            sums[v] = ADD ? load(out + v * WIDTH<T>) + train[0][v] * x[i] : train[0][v] * x[i];
        for (int c = 1; c < CHANNELS; ++c)
            for (int v = 0; v < VECTORS; ++v) sums[v] += train[c][v] * x[c * x_stride + i];
        for (int v = 0; v < VECTORS; ++v) store(out + v * WIDTH<T>, sums[v]);
    }
}

// The same for any number of vectors.
template <class T, int CHANNELS, bool ADD>
inline void pixel_products(const T* x, int x_stride, const T* z, int z_stride, int rows, int vectors, T* out,
                           int out_stride) {
    constexpr int V = WIDTH<T>;
    int v = 0;
    const auto products = [&](auto count) {
        constexpr int COUNT = decltype(count)::value;
        for (; v + COUNT <= vectors; v += COUNT)
            pixel_products<T, CHANNELS, COUNT, ADD>(x, x_stride, z + v * V, z_stride, rows, out + v * V, out_stride);
    };
    if constexpr (CHANNELS <= 4) products(Number<4>{});
    products(Number<2>{});
    products(Number<1>{});
}

// The same for any number of channels, as many at a time as there are registers for.
template <class T>
inline void pixel_products(bool add, int channels, const T* x, int x_stride, const T* z, int z_stride, int rows,
                           int vectors, T* out, int out_stride) {
    for (int c = 0; c < channels; add = true) {
        const int left = channels - c;
        const auto some = [&](auto count) {
            constexpr int COUNT = decltype(count)::value;
            const auto work = add ? pixel_products<T, COUNT, true> : pixel_products<T, COUNT, false>;
            work(x + c * x_stride, x_stride, z + c * z_stride, z_stride, rows, vectors, out, out_stride);
            c += COUNT;
        };
        if (MOST_CHANNELS > 4 && left >= MOST_CHANNELS) some(Number<MOST_CHANNELS>{});
        else if (left >= 4) some(Number<4>{});
        else if (left == 3) some(Number<3>{});
        else if (left == 2) some(Number<2>{});
        else some(Number<1>{});
    }
}

// A vector in each of COUNT rows of S; `before` lanes of the first row lie before its first column.
template <class T, int COUNT, int TAPS>
__attribute__((always_inline)) inline void vectors_across(int taps, int pool, int before, const T* from,
                                                          std::size_t tap, T* to, std::size_t next) {
    const T* base[(TAPS + COUNT) / 4 + 1];
    T* row[(COUNT + 3) / 4];
    for (const T*& one : base) one = opaque(from + 4 * (&one - base) * tap);
    for (T*& one : row) one = opaque(to + 4 * (&one - row) * next);
    Vec<T> sums[COUNT];
    if constexpr (TAPS) windows<T, COUNT>(TAPS, [&](int e) { return load(base[e / 4] + e % 4 * tap); }, sums);
    else windows<T, COUNT>(taps, [=](int e) { return load(from + e * tap); }, sums);
    for (int r = 0; r < COUNT; ++r) {
        T* const out = row[r / 4] + r % 4 * next;
        if (before > 0) store_from(before - r * pool, out, sums[r]);
        else store(out, sums[r]);
    }
}

// S from K: out[l][m] for `columns` columns l and, in whole vectors, `lanes` columns m. Windows that are summed
// together belong to columns m next to each other, so that some vectors begin before the first column, where what is
// there is kept if `close`, or end after the last: there nothing of use may lie yet. The loops are kept this plain
// because setting them up shows.
template <class T, int COUNT, int TAPS>
STAGE void across(int any_taps, int pool, int columns, int lanes, bool close, const T* products,
                  std::size_t product_stride, T* out, std::size_t out_stride) {
    const int taps = TAPS ? TAPS : any_taps, step = COUNT * pool, spread = step - pool;
    const std::size_t tap = pool * (product_stride + 1), next = pool * (out_stride + 1);
    for (int start = 0; start < pool; ++start) {
        const T* from = products + start * product_stride - spread;
        T* to = out + start * out_stride - spread;
        for (int block = 0; block < columns; block += step, from += step * product_stride, to += step * out_stride)
            for (int v = 0; v < lanes; v += WIDTH<T>)
                vectors_across<T, COUNT, TAPS>(taps, pool, close ? spread - v : 0, from + v, tap, to + v, next);
    }
}

// The same with `count` windows summed together.
template <class T>
inline void across(int count, int taps, int pool, int columns, int lanes, bool close, const T* products,
                   std::size_t product_stride, T* out, std::size_t out_stride) {
    const auto sum = [&](auto work) {
        work(taps, pool, columns, lanes, close, products, product_stride, out, out_stride);
    };
    switch (count) {
        case 8:
            switch (taps) {
                case 9: return sum(across<T, 8, 9>);
                case 11: return sum(across<T, 8, 11>);
                case 13: return sum(across<T, 8, 13>);
                default: return sum(across<T, 8, 0>);
            }
        case 4:
            switch (taps) {
                case 4: return sum(across<T, 4, 4>);
                case 5: return sum(across<T, 4, 5>);
                case 7: return sum(across<T, 4, 7>);
                default: return sum(across<T, 4, 0>);
            }
        case 2: return sum(across<T, 2, 0>);
        default: return sum(across<T, 1, 0>);
    }
}
