// One query against one training image: see kernel.h for what goes in and out.

template <class T> struct Comparer {
    const Geometry& g;
    const Layout<T> at;
    const PictureLayout<T> picture;
    char* const scratch;
    const Answer& answer;
    Picture<T> x;
    const Picture<T> z;
    const float cut;
    const Store* keeping = nullptr;  // where inner products go; without one they become the answer at once

    Comparer(const Geometry& geometry, const void* query, void* memory, const Answer& out)
        : g(geometry), at(g), picture(g), scratch(static_cast<char*>(memory)), answer(out), x(picture.at(g, query)),
          z(picture.at(g, scratch + at.train)), cut(cut_below(g.rows.inside * g.columns.inside)) {}

    template <class X = T> X* part(std::size_t offset) const { return reinterpret_cast<X*>(scratch + offset); }

    std::size_t place(int row, int column) const { return std::size_t(row) * g.columns.positions + column; }

    void answer_with(int row, int column, double peak, Sums sums) const {
        const std::size_t l = place(row, column);
        answer.peak[l] = peak / BINARY;
        answer.total[l] = sums.total;
        answer.top[l] = sums.top;
    }

    float* colour_at(int row, int column) const { return answer.colour + place(row, column) * g.channels; }

    // The middle pixel of the training patch at a position.
    float& middle(int channel, int row, int column) const {
        return part<float>(at.middles)[channel * g.patches() + place(row, column)];
    }

    // All middle pixels, and those of interior patches also beside each other as their logits are, 0 where is no patch.
    void middles(const float* pixels) const {
        for (int c = 0; c < g.channels; ++c) {
            for (int r = 0; r < g.rows.positions; ++r)
                for (int m = 0; m < g.columns.positions; ++m)
                    middle(c, r, m) = pixels[(std::size_t(c) * g.rows.side + r + g.middle) * g.columns.side + m + g.middle];
            float* inside = part<float>(at.inside_middles) + c * at.middle_stride;
            for (std::size_t i = 0; i < at.middle_stride; ++i) inside[i] = 0;
            for (int r = 0; r < g.rows.inside; ++r)
                for (int m = 0; m < g.columns.inside; ++m)
                    inside[r * at.stride + m] = middle(c, g.rows.first + r, g.columns.first + m);
        }
    }

    // ||u||^2 of a training patch.
    double norm_sum(int row, int column) const {
        return part<double>(at.norm_sums)[std::size_t(row) * picture.width + column];
    }

    // Norms of the interior training patches. Where there is no patch, as in the rows around them, there is NOTHING: it
    // is never the largest and has no weight.
    T* norm_row(int row) const { return part(at.norms) + at.head + long(row) * at.stride; }

    void norms(double scale) const {
        const T none = T(keeping ? 0 : NOTHING);
        for (std::size_t i = 0; i < at.norms_count(); ++i) part(at.norms)[i] = none;
        for (int r = 0; r < g.rows.inside; ++r)
            for (int m = 0; m < g.columns.inside; ++m)
                norm_row(r)[m] = T(norm_sum(g.rows.first + r, g.columns.first + m) * scale);
    }

    // S(a, b) for the query columns [begin, begin + group) of the interior.
    void table(int a, int b, int begin, T* out) const {
        const int columns = at_most(at.group, g.columns.inside - begin);
        T* products = part(at.products) + at.lead;
        pixel_products(false, g.channels, x.row(a) + g.columns.first + begin, x.row_stride, z.row(b) + g.columns.first,
                       z.row_stride, columns + at.reach, at.product_vectors, products, at.product_stride);
        across<T>(at.shared_across, g.taps, g.pool, columns, at.row_lanes, at.close, products, at.product_stride, out,
                  at.column_stride);
    }

    // Where the tables of slot a have the one with b = 0: its rows are b, or, where that needs less room, b - a.
    long origin(int a) const { return at.table_rows < at.inner_rows ? g.rows.inside - 1 - a : 0; }

    // S(a, b) for all b that can be part of a pair; a and b are counted from the first interior row. In this order,
    // because the end of each row is written over the beginning of the next.
    void fill_slot(int a, int begin, T* slot) const {
        const int low = at_least(0, a - g.rows.inside + 1), high = at_most(at.inner_rows, a + g.rows.inside);
        for (int b = low; b < high; ++b)
            table(a + g.rows.first, b + g.rows.first, begin, slot + (b + origin(a)) * at.stride);
    }

    // All partners of COUNT query patches on top of each other (rows row, row + w, ...), in one query column. Partners
    // of the first are counted from `head` before the first on, so that the last one has all of its own; those that are
    // not there get a place outside of the logits and a norm of NOTHING. tables[e] holds row e's S for this column, from
    // b = e w on.
    template <int COUNT, int TAPS> STAGE void column_down(int row, int rows, int column, const T* const* tables) const {
        constexpr int V = WIDTH<T>, STEP = Layout<T>::STEP;
        const int w = g.pool, taps = TAPS ? TAPS : g.taps, partners = at.inside_stride;
        const std::size_t below = std::size_t(w) * at.stride, logits_below = at.logit_stride + below;
        const T* own_tables[TAPS ? TAPS + COUNT - 1 : 1];  // so that the compiler sees that nobody writes to them
        for (int e = 0; e < (TAPS ? TAPS + COUNT - 1 : 0); ++e) own_tables[e] = tables[e];
        const T* const* const from = TAPS ? own_tables : tables;
        T* const logits = part(at.logits) + at.head;
        const T* const norms = norm_row(0);
        Vec<T> peaks[COUNT];
        for (int r = 0; r < COUNT; ++r) peaks[r] = all(T(NOTHING));
        for (long partner = -at.head; partner < partners; partner += STEP) {
            Vec<T> sums[AT_ONCE][COUNT];
            for (int u = 0; u < AT_ONCE; ++u)
                windows<T, COUNT>(taps, [=](int e) { return load(from[e] + partner + u * V); }, sums[u]);
            for (int u = 0; u < AT_ONCE; ++u)
                for (int r = 0; r < COUNT; ++r) {
                    const Vec<T> logit = sums[u][r] + load(norms + partner + r * below + u * V);
                    store(logits + partner + r * logits_below + u * V, logit);
                    peaks[r] = larger(peaks[r], logit);
                }
        }
        for (int r = 0; r < at_most(COUNT, rows); ++r) {
            T* const own = logits + r * at.logit_stride;
            const int own_row = g.rows.first + row + r * w;
            if (keeping) copy(own, at.inside_stride, kept_inside(*keeping, own_row, column));
            else answer_inside(own_row, column, own, largest<T>(peaks[r]));
        }
    }

    static void copy(const T* from, int lanes, T* to) {
        for (int i = 0; i < lanes; i += WIDTH<T>) store(to + i, load(from + i));
    }

    // From the logits of all partners of an interior patch to its answer; what follows the logits is overwritten.
    void answer_inside(int row, int column, T* logits, T peak) const {
        int lanes = at.inside_stride;
        for (; lanes % W; lanes += WIDTH<T>) store(logits + lanes, all(T(NOTHING)));
        answer_with(row, column, double(peak), sums_of(logits, lanes, peak, cut, g.k, part<float>(at.kept)));
        if (answer.colour)
            colours_of(logits, lanes, peak, cut, g.channels, part<float>(at.inside_middles), at.middle_stride,
                       colour_at(row, column));
    }

    template <int COUNT> void column_down(int row, int rows, int column, const T* const* tables) const {
        if (COUNT == 4) {
            switch (g.taps) {
                case 4: return column_down<COUNT, 4>(row, rows, column, tables);
                case 5: return column_down<COUNT, 5>(row, rows, column, tables);
                case 7: return column_down<COUNT, 7>(row, rows, column, tables);
                case 9: return column_down<COUNT, 9>(row, rows, column, tables);
                case 11: return column_down<COUNT, 11>(row, rows, column, tables);
                case 13: return column_down<COUNT, 13>(row, rows, column, tables);
                default: break;
            }
        }
        column_down<COUNT, 0>(row, rows, column, tables);
    }

    // Interior query patches in columns [begin, begin + group); false if stopped.
    template <int COUNT> bool interior(int begin, const Control& control) const {
        const int columns = at_most(at.group, g.columns.inside - begin), w = g.pool;
        T* const ring = part(at.ring) + at.ring_margin();
        const T** tables = part<const T*>(at.pointers);
        for (int start = 0; start < at_most(w, g.rows.inside); ++start) {  // rows w apart have tables in common
            int filled = 0;
            for (int row = start; row < g.rows.inside; row += COUNT * w) {
                if (control.stop(control.context)) return false;
                const int rows = at_most(COUNT, (g.rows.inside - row + w - 1) / w), from = (row - start) / w;
                for (; filled < from + g.taps + rows - 1; ++filled)
                    fill_slot(start + filled * w, begin, ring + (filled % at.slots) * at.slot_stride);
                for (int l = 0; l < columns; ++l) {
                    for (int e = 0; e < at.slots; ++e)
                        tables[e] = ring + ((from + e) % at.slots) * at.slot_stride + l * at.column_stride +
                                    (e * w + origin(row + e * w)) * at.stride;
                    column_down<COUNT>(row, rows, g.columns.first + begin + l, tables);
                }
            }
        }
        return true;
    }

    // Patches that hang over the border on one axis and lie inside on the other. They pair with patches at the same edge
    // position, so one of the four indices is gone: with lines p across the border and pixels i, m along it,
    //
    //     E[i, m] = sum over the lines p of the patch of <x[p, i], z[p, m]>,   G[l, m] = sum over d of E[l + d w, m + d w]
    //
    // From the outermost position inwards a patch gains a line and loses one that lies outside of the picture and is 0,
    // so that E only ever grows. `rows` says that the border in question is the upper and lower one.
    STAGE void edges(bool rows, double scale) const {
        const Axis& border = rows ? g.rows : g.columns;
        const int w = g.pool, end = border.first + border.inside;
        for (int start = 0; start < at_most(w, border.first); ++start)
            for (int position = start; position < border.first; position += w)
                edge(rows, position, position == start, position + at.reach, scale);
        for (int start = border.positions - 1; start >= at_least(end, border.positions - w); --start)
            for (int position = start; position >= end; position -= w)
                edge(rows, position, position == start, position, scale);
    }

    // One edge position: E gets all of its lines, or only the one that it has not got yet.
    void edge(bool rows, int position, bool all_lines, int new_line, double scale) const {
        constexpr int V = WIDTH<T>;
        const Axis &border = rows ? g.rows : g.columns, &along = rows ? g.columns : g.rows;
        const int w = g.pool, inner = along.inside + at.reach, vectors = (inner + V - 1) / V;
        T *products = part(at.edge_products) + at.lead, *sums = part(at.edge_sums) + at.lead;
        if (all_lines)
            for (int i = 0; i < inner; ++i)
                for (int v = 0; v < vectors; ++v) store(products + i * at.edge_product_stride + v * V, Vec<T>{});
        for (int p = all_lines ? position : new_line; p <= (all_lines ? position + at.reach : new_line); p += w) {
            if (p + w <= border.pad || p >= border.pad + border.side) continue;  // outside of the picture
            pixel_products(true, g.channels, (rows ? x.row(p) : x.column(p)) + along.first,
                           rows ? x.row_stride : x.column_stride, (rows ? z.row(p) : z.column(p)) + along.first,
                           rows ? z.row_stride : z.column_stride, inner, vectors, products, at.edge_product_stride);
        }
        across<T>(at.shared, g.taps, w, along.inside, at.edge_stride, false, products, at.edge_product_stride, sums,
                  at.edge_stride);
        if (keeping) {
            for (int l = 0; l < along.inside; ++l)
                copy(sums + std::size_t(l) * at.edge_stride, PictureLayout<T>::whole(along.inside),
                     kept_edge(*keeping, rows, position, along.first + l));
            return;
        }
        edge_norms(rows, position, scale);
        for (int l = 0; l < along.inside; ++l)
            answer_edge(rows, position, along.first + l,
                        [=](int m) { return load(sums + std::size_t(l) * at.edge_stride + m); });
    }

    // Norms and middle pixels of the patches at an edge position.
    void edge_norms(bool rows, int position, double scale) const {
        const Axis& along = rows ? g.columns : g.rows;
        T* const norms = part(at.edge_norms);
        for (int m = 0; m < at.edge_lanes; ++m) norms[m] = T(NOTHING);
        for (int m = 0; m < along.inside; ++m)
            norms[m] = T(scale * (rows ? norm_sum(position, along.first + m) : norm_sum(along.first + m, position)));
        float* const beside = part<float>(at.edge_middles);
        if (answer.colour)
            for (int c = 0; c < g.channels; ++c)
                for (int m = 0; m < at.edge_lanes; ++m)
                    beside[c * at.edge_lanes + m] = m >= along.inside ? 0
                                                    : rows ? middle(c, position, along.first + m)
                                                           : middle(c, along.first + m, position);
    }

    // One patch at an edge position, `place` along the border; products(m) are those with partners from m on.
    template <class Products> void answer_edge(bool rows, int position, int place, Products products) const {
        constexpr int V = WIDTH<T>;
        const int partners = (rows ? g.columns : g.rows).inside;
        const T* const norms = part(at.edge_norms);
        T* const logits = part(at.logits);
        Vec<T> peaks = all(T(NOTHING));
        int m = 0;
        for (; m < partners; m += V) {
            const Vec<T> logit = products(m) + load(norms + m);
            store(logits + m, logit);
            peaks = larger(peaks, logit);
        }
        for (; m % W; m += V) store(logits + m, all(T(NOTHING)));
        const T peak = largest<T>(peaks);
        const int row = rows ? position : place, column = rows ? place : position;
        answer_with(row, column, double(peak), sums_of(logits, m, peak, cut, g.k, part<float>(at.kept)));
        if (answer.colour)
            colours_of(logits, m, peak, cut, g.channels, part<float>(at.edge_middles), at.edge_lanes,
                       colour_at(row, column));
    }

    // Patches that hang over the border on both axes: their only partner is the one at the same place. Their inner
    // products: [row position][column position], `picture.width` apart.
    STAGE void corner_products(double* products) const {
        for (int r = 0; r < picture.height; ++r) {
            double* line = products + std::size_t(r) * picture.width;
            for (int j = 0; j < picture.width; ++j) line[j] = 0;
            for (int c = 0; c < g.channels; ++c)
                for (int j = 0; j < picture.width; ++j)
                    line[j] += double(x.row(r)[c * x.row_stride + j]) * z.row(r)[c * z.row_stride + j];
        }
        patch_sums(g, picture.width, products, part<double>(at.spare));
    }

    // product(row, column) is that of a corner patch.
    template <class Product> void answer_corners(double scale, Product product) const {
        for (int row = 0; row < g.rows.positions; ++row)
            for (int column = 0; column < g.columns.positions; ++column)
                if (g.rows.is_edge(row) && g.columns.is_edge(column)) {
                    answer_with(row, column, product(row, column) + norm_sum(row, column) * scale, {1, 1});
                    for (int c = 0; answer.colour && c < g.channels; ++c)
                        colour_at(row, column)[c] = middle(c, row, column);
                }
    }

    template <int COUNT> void compare(double norm_scale, const Control& control) const {
        norms(norm_scale);
        for (int begin = 0; begin < g.columns.inside; begin += at.group)
            if (!interior<COUNT>(begin, control)) return;
        if (g.rows.edges()) edges(true, norm_scale);
        if (g.columns.edges()) edges(false, norm_scale);
        if (!g.rows.edges() || !g.columns.edges()) return;
        double* const products = part<double>(keeping ? keeping->corners : at.plane);
        corner_products(products);
        if (!keeping)
            answer_corners(norm_scale, [=](int row, int column) {
                return products[std::size_t(row) * picture.width + column];
            });
    }

    void compare(double norm_scale, const Control& control) const {
        if (at.shared == 4) compare<4>(norm_scale, control);
        else if (at.shared == 2) compare<2>(norm_scale, control);
        else compare<1>(norm_scale, control);
    }

    void prepare_image(const Image& image) const {
        double* plane = part<double>(at.plane);
        prepare_picture<T>(g, image.pixels, image.colour, 1.0, plane, scratch + at.train, part<double>(at.norm_sums));
        patch_sums(g, picture.width, part<double>(at.norm_sums), part<double>(at.spare));
        if (answer.colour) middles(image.pixels);
    }

    // --- patchwork: inner products with the pixels and with the noise of the query apart, and their sums the answer ---

    T* kept_inside(const Store& of, int row, int column) const {
        const std::size_t patch = std::size_t(row - g.rows.first) * g.columns.inside + column - g.columns.first;
        return part(of.inside) + patch * at.inside_stride;
    }

    T* kept_edge(const Store& of, bool rows, int position, int place) const {
        const Axis &border = rows ? g.rows : g.columns, &along = rows ? g.columns : g.rows;
        const int edge = position < border.first ? position : position - border.inside;
        const std::size_t patch = std::size_t(edge) * along.inside + place - along.first;
        return part(rows ? of.row_edges : of.column_edges) + patch * (rows ? at.row_edge_stride : at.column_edge_stride);
    }

    void keep_products(const Picture<T>& of, const Store& in, const Control& control) {
        x = of;
        keeping = &in;
        compare(0, control);
        keeping = nullptr;
    }

    void answer_patchwork(const Patchwork& work, double norm_scale) const {
        const Store &pixels = at.stores[0], &noise = at.stores[1];
        const auto sign = [&](int row, int column) { return work.signs[place(row, column)]; };
        norms(norm_scale);
        for (int row = g.rows.first; row < g.rows.first + g.rows.inside; ++row)
            for (int column = g.columns.first; column < g.columns.first + g.columns.inside; ++column)
                answer_sum(row, column, kept_inside(pixels, row, column),
                           kept_inside(noise, work.rows[row], work.columns[column]), T(sign(row, column)));
        for (int axis = 0; axis < 2; ++axis) {
            const bool rows = axis == 0;
            const Axis &border = rows ? g.rows : g.columns, &along = rows ? g.columns : g.rows;
            const int* const places = rows ? work.columns : work.rows;
            for (int position = 0; position < border.positions; ++position) {
                if (!border.is_edge(position)) continue;
                edge_norms(rows, position, norm_scale);
                for (int l = along.first; l < along.first + along.inside; ++l) {
                    const T* const a = kept_edge(pixels, rows, position, l);
                    const T* const b = kept_edge(noise, rows, position, places[l]);
                    const T factor = T(rows ? sign(position, l) : sign(l, position));
                    answer_edge(rows, position, l, [=](int m) { return load(a + m) + load(b + m) * factor; });
                }
            }
        }
        const double *own = part<double>(pixels.corners), *other = part<double>(noise.corners);
        const double* const turned = part<double>(at.turned);
        answer_corners(norm_scale, [&](int row, int column) {
            const std::size_t l = std::size_t(row) * picture.width + column;
            return own[l] + (work.turned[row] ? turned : other)[l] * sign(row, column);
        });
    }

    STAGE void answer_sum(int row, int column, const T* pixels, const T* noise, T sign) const {
        T* const logits = part(at.logits);
        const T* const norms = norm_row(0);
        Vec<T> peaks = all(T(NOTHING));
        for (int i = 0; i < at.inside_stride; i += WIDTH<T>) {
            const Vec<T> logit = load(pixels + i) + load(noise + i) * sign + load(norms + i);
            store(logits + i, logit);
            peaks = larger(peaks, logit);
        }
        answer_inside(row, column, logits, largest<T>(peaks));
    }

    void compare(const Query& query, const char* prepared, const Image& image, const Control& control) {
        if (!image.prepared) prepare_image(image);
        const double norm_scale = BINARY * query.norm_scale;
        if (!g.patchwork) return compare(norm_scale, control);
        if (!image.prepared) keep_products(x, at.stores[0], control);
        keep_products(picture.at(g, prepared + picture.end), at.stores[1], control);
        if (control.stop(control.context)) return;
        if (g.rows.edges() && g.columns.edges()) {
            x = picture.at(g, prepared + 2 * picture.end);
            corner_products(part<double>(at.turned));
        }
        answer_patchwork(query.patchwork, norm_scale);
    }
};

std::size_t scratch_bytes(const Geometry& g, bool wide) { return wide ? Layout<double>(g).end : Layout<float>(g).end; }

std::size_t query_bytes(const Geometry& g, bool wide) {
    return (wide ? PictureLayout<double>(g).end : PictureLayout<float>(g).end) * (g.patchwork ? 3 : 1);
}

template <class T> void prepare(const Geometry& g, const Query& query, void* scratch, void* prepared) {
    // only the plane of the scratch memory: what lies beside columns in the other parts must stay 0
    double* const plane = reinterpret_cast<double*>(static_cast<char*>(scratch) + Layout<T>(g).plane);
    char* at = static_cast<char*>(prepared);
    prepare_picture<T>(g, query.pixels, query.colour, BINARY * query.scale, plane, at, nullptr);
    if (!g.patchwork) return;
    const float* const noises[] = {query.noise, query.turned};
    for (const float* noise : noises)
        prepare_picture<T>(g, noise, nullptr, BINARY * query.scale, plane, at += PictureLayout<T>(g).end, nullptr);
}

void prepare(const Geometry& g, const Query& query, void* scratch, void* prepared) {
    if (query.wide) prepare<double>(g, query, scratch, prepared);
    else prepare<float>(g, query, scratch, prepared);
}

void compare(const Geometry& g, const Query& query, const void* prepared, const Image& image, void* scratch,
             const Answer& answer, const Control& control) {
    const char* const memory = static_cast<const char*>(prepared);
    if (query.wide) Comparer<double>(g, prepared, scratch, answer).compare(query, memory, image, control);
    else Comparer<float>(g, prepared, scratch, answer).compare(query, memory, image, control);
}

// For each patch: the log of the sum of all images' totals, each image's part in that sum, and its colour in that part.
void share(const Geometry& g, std::size_t images, std::size_t begin, std::size_t count, const Answer& answer,
           double* log_normaliser, float* shares, float* colours, float* scratch) {
    const std::size_t patches = g.patches(), channels = g.channels;
    for (std::size_t l = begin; l < begin + count; l += W) {
        const int lanes = at_most(W, int(begin + count - l));
        double peak[W], total[W];
        for (int i = 0; i < lanes; ++i) {
            peak[i] = NOTHING;
            total[i] = 0;
            for (std::size_t n = 0; n < images; ++n)
                peak[i] = answer.peak[n * patches + l + i] > peak[i] ? answer.peak[n * patches + l + i] : peak[i];
        }
        for (std::size_t n = 0; n < images; ++n) {
            const std::size_t at = n * patches + l;
            F weight{};
            for (int i = 0; i < lanes; ++i) weight[i] = float((answer.peak[at + i] - peak[i]) * BINARY);
            weight = power_of_any(weight);
            for (int i = 0; i < lanes; ++i) {
                total[i] += double(answer.total[at + i]) * weight[i];
                scratch[2 * n * W + i] = answer.top[at + i] * weight[i];
                scratch[(2 * n + 1) * W + i] = weight[i];
            }
        }
        for (int i = 0; i < lanes; ++i) {
            log_normaliser[l + i] = peak[i] + __builtin_log(total[i]);
            const float factor = float(1 / total[i]);
            for (std::size_t n = 0; n < images; ++n) shares[(l + i) * images + n] = scratch[2 * n * W + i] * factor;
            if (!colours) continue;
            for (std::size_t n = 0; n < images; ++n)
                for (std::size_t c = 0; c < channels; ++c)
                    colours[((l + i) * images + n) * channels + c] =
                        answer.colour[(n * patches + l + i) * channels + c] * (scratch[(2 * n + 1) * W + i] * factor);
        }
    }
}
