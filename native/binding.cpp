// patchtrace._native: the kernels for Python. engines/native.py is the only one who calls it, and checks what it gives.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "driver.h"
#include "helpers.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace patchtrace;

namespace {

using Pixels = nb::ndarray<const float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Colours = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Positions = nb::ndarray<const int, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Signs = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool fits, const char* what) {
    if (!fits) throw nb::value_error(what);
}

const Kernel& kernel_named(const std::string& name) {
    for (const Kernel* kernel : kernels())
        if (name == kernel->name) return *kernel;
    throw nb::value_error("this processor has no such instruction set");
}

Axis axis_of(nb::tuple numbers, std::size_t side) {
    require(numbers.size() == 4, "an axis is (pad, positions, first, inside)");
    return {static_cast<int>(side), nb::cast<int>(numbers[0]), nb::cast<int>(numbers[1]), nb::cast<int>(numbers[2]),
            nb::cast<int>(numbers[3])};
}

void check(const Axis& axis, int taps, int pool) {
    const int last = axis.positions - 1 + taps * pool;  // one past the last pixel of the last patch
    require(axis.side > 0 && axis.pad >= 0 && axis.positions > 0 && last <= axis.side + 2 * axis.pad,
            "positions do not fit the picture");
    require(axis.first >= 0 && axis.inside > 0 && axis.first + axis.inside <= axis.positions,
            "interior positions do not fit the positions");
}

// Positions of the noise: interior ones for interior ones, the same for those over the border.
void check(const Positions& places, const Axis& axis) {
    require(places.shape(0) == static_cast<std::size_t>(axis.positions), "one place for each position");
    for (int i = 0; i < axis.positions; ++i) {
        const int place = places.data()[i];
        require(axis.is_edge(i) ? place == i : place >= 0 && place < axis.positions && !axis.is_edge(place),
                "noise from a place that hangs over the border in another way");
    }
}

nb::tuple colour(Pixels block, bool moved, int threads) {
    require(block.size() > 0 && threads > 0, "an empty block");
    Geometry geometry{};
    geometry.channels = static_cast<int>(block.shape(1));
    geometry.rows.side = static_cast<int>(block.shape(2));
    geometry.columns.side = static_cast<int>(block.shape(3));
    Colour found;
    {
        nb::gil_scoped_release released;
        found = colour_of(geometry, {block.data(), block.shape(0)}, moved, threads);
    }
    nb::list mean;
    for (double value : found.mean) mean.append(value);
    return nb::make_tuple(mean, found.squares);
}

// Bytes of scratch memory that a thread needs to compare pictures of this size.
std::size_t scratch_bytes(int channels, int height, int width, nb::tuple rows, nb::tuple columns, int taps, int pool,
                          bool patchwork, bool wide, const std::string& instructions) {
    Geometry geometry{channels, axis_of(rows, height), axis_of(columns, width), taps, pool, 0, 1, 1, table_bytes(),
                      patchwork};
    require(channels > 0 && taps > 0 && pool > 0, "sizes must be above 0");
    check(geometry.rows, taps, pool);
    check(geometry.columns, taps, pool);
    return kernel_named(instructions).scratch_bytes(geometry, wide);
}

void compare_blocks(Pixels versions, Numbers signal, Numbers variance, Flags wide, Pixels block, Numbers train_colour,
                    Doubles query_colour, nb::tuple rows, nb::tuple columns, int taps, int pool, int middle, double divisor,
                    long k, const std::string& instructions, int threads, Doubles log_normaliser, Floats share,
                    std::optional<Colours> colour, std::optional<Pixels> noise, std::optional<Pixels> turned,
                    std::optional<Positions> noise_rows, std::optional<Positions> noise_columns,
                    std::optional<Signs> signs, std::optional<Flags> turned_rows) {
    const std::size_t count = versions.shape(0);
    Geometry geometry{static_cast<int>(versions.shape(1)), axis_of(rows, versions.shape(2)),
                      axis_of(columns, versions.shape(3)), taps, pool, middle, divisor, k,
                      table_bytes(), noise.has_value()};
    require(count > 0 && block.size() > 0 && geometry.channels > 0, "nothing to compare");
    for (int axis = 1; axis < 4; ++axis) require(block.shape(axis) == versions.shape(axis), "pictures differ in size");
    require(taps > 0 && pool > 0 && divisor > 0 && k > 0 && threads > 0, "sizes must be above 0");
    check(geometry.rows, taps, pool);
    check(geometry.columns, taps, pool);
    require(signal.shape(0) == count && variance.shape(0) == count && wide.shape(0) == count &&
                query_colour.shape(0) == count && query_colour.shape(1) == versions.shape(1) &&
                train_colour.shape(0) == versions.shape(1),
            "one signal, variance, precision and colour for each version");
    require(log_normaliser.shape(0) == count && log_normaliser.shape(1) == geometry.patches() &&
                share.shape(0) == count && share.shape(1) == geometry.patches() && share.shape(2) == block.shape(0),
            "the room for the answer has another shape");
    if (colour) {
        require(middle >= 0 && geometry.rows.positions + middle <= geometry.rows.side &&
                    geometry.columns.positions + middle <= geometry.columns.side,
                "middle pixels do not fit the picture");
        require(colour->shape(0) == count && colour->shape(1) == geometry.patches() &&
                    colour->shape(2) == block.shape(0) && colour->shape(3) == versions.shape(1),
                "the room for the colours has another shape");
    }
    Patchwork patchwork{};
    if (noise) {
        require(turned && noise_rows && noise_columns && signs && turned_rows, "a part of the patchwork is missing");
        for (int axis = 0; axis < 4; ++axis)
            require(noise->shape(axis) == versions.shape(axis) && turned->shape(axis) == versions.shape(axis),
                    "the noise has another size");
        check(*noise_rows, geometry.rows);
        check(*noise_columns, geometry.columns);
        require(signs->shape(0) == noise_rows->shape(0) && signs->shape(1) == noise_columns->shape(0) &&
                    turned_rows->shape(0) == noise_rows->shape(0),
                "one sign for each patch");
        patchwork = {noise_rows->data(), noise_columns->data(), signs->data(), turned_rows->data()};
    }
    const Kernel& kernel = kernel_named(instructions);
    std::vector<Query> queries;
    for (std::size_t v = 0; v < count; ++v) {
        const double s = signal.data()[v], variance_ = variance.data()[v];
        queries.push_back({versions.data() + v * geometry.pixels(), query_colour.data() + v * versions.shape(1),
                           s / variance_, -s * s / (2 * variance_), wide.data()[v],
                           noise ? noise->data() + v * geometry.pixels() : nullptr,
                           turned ? turned->data() + v * geometry.pixels() : nullptr, patchwork});
    }
    bool done;
    {
        nb::gil_scoped_release released;
        done = compare(kernel, geometry, queries, {block.data(), block.shape(0)}, train_colour.data(), threads,
                       log_normaliser.data(), share.data(), colour ? colour->data() : nullptr, [] {
                           nb::gil_scoped_acquire held;
                           return PyErr_CheckSignals() != 0;
                       });
    }
    if (!done) throw nb::python_error();
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "The kernels behind engines/native.py.";
    module.def("instruction_sets", [] {
        std::vector<std::string> names;
        for (const Kernel* kernel : kernels()) names.push_back(kernel->name);
        return names;
    });
    module.def("processors", &processors);
    module.def("second_level_cache", &second_level_cache);
    module.def("scratch_bytes", &scratch_bytes, "channels"_a, "height"_a, "width"_a, "rows"_a, "columns"_a, "taps"_a,
               "pool"_a, "patchwork"_a, "wide"_a, "instructions"_a);
    module.def("colour", &colour, "block"_a, "moved"_a, "threads"_a);
    module.def("compare", &compare_blocks, "versions"_a, "signal"_a, "variance"_a, "wide"_a, "block"_a,
               "train_colour"_a, "query_colour"_a, "rows"_a, "columns"_a, "taps"_a, "pool"_a, "middle"_a,
               "divisor"_a, "k"_a, "instructions"_a, "threads"_a, "log_normaliser"_a, "share"_a, "colour"_a.none(),
               "noise"_a.none() = nb::none(), "turned"_a.none() = nb::none(), "noise_rows"_a.none() = nb::none(),
               "noise_columns"_a.none() = nb::none(), "signs"_a.none() = nb::none(),
               "turned_rows"_a.none() = nb::none());
}
