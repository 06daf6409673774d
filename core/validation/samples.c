#include "core/validation/samples.h"

#include <math.h>

#include "core/analysis/view.h"
#include "core/weights/dtype.h"

#define SMALL 0x1p-10
#define LARGE 0x1p7
#define BESIDE 0x1p-7 /* relative to a bound */
#define MOST_VIEWS 8  /* between integers and the table */

/* ---- numbers that the graphs name ---------------------------------------------------------------------------------------- */

static void add_bound(fb_bounds *bounds, double number) {
    bool is_drawn_anyway = fabs(number) <= 3.5 && number * 2 == round(number * 2);
    bool is_known = is_drawn_anyway || !(fabs(number) >= SMALL && fabs(number) <= 1 / SMALL);
    for (size_t i = 0; i < bounds->count && !is_known; i++) is_known = bounds->numbers[i] == number;
    if (!is_known && bounds->count < FB_MOST_BOUNDS) bounds->numbers[bounds->count++] = number;
}

void fb_bounds_add(fb_bounds *bounds, const fb_graph *graph, fb_value value, fb_work *work) {
    const fb_value_row *row = value.id ? fb_value_at(graph, value) : NULL;
    if (!row) return;
    if (row->kind == FB_INT) add_bound(bounds, (double)row->integer);
    else if (row->kind == FB_FLOAT) add_bound(bounds, row->real);
    for (uint32_t i = 0; i < row->count && fb_work_goes_on(work, 1); i++) fb_bounds_add(bounds, graph, row->items[i], work);
}

/* ---- changes of what was drawn ------------------------------------------------------------------------------------------- */

/* A bound, the dtype's next number on either side of it, or one between it and another bound that is near. Where it is not a
 * number of the dtype, rounding decides what is equal to it, and a sample with it would say nothing. */
static double near_bound(double bound, double fraction, fb_dtype dtype) {
    fb_dtype_range range;
    int exponent, bits = fb_dtype_limits(dtype, &range) && range.mantissa_bits < 24 ? range.mantissa_bits : 24;
    double mantissa = ldexp(frexp(bound, &exponent), bits), whole = round(mantissa), sign = fraction < 0.75 ? 1 : -1;
    if (fraction < 0.5 && mantissa == whole) return bound;
    return fmod(fraction, 0.25) < 0.125 ? ldexp(whole + sign, exponent - bits) : bound * (1 + sign * BESIDE);
}

/* Half of the numbers, which are drawn within ±√3, become bounds, and the rest multiples of 0.5 within ±3.5. */
static double repeated(const fb_bounds *bounds, double number, fb_dtype dtype) {
    double part = (number / 1.7320508075688772 + 1) / 2 * (bounds->count ? 2 : 1), place;
    if (part < 1) return round((2 * part - 1) * 7) / 2;
    double fraction = modf(fmin(part - 1, 1 - 0x1p-20) * (double)bounds->count, &place);
    return near_bound(bounds->numbers[(size_t)place], fraction, dtype);
}

static double changed(const fb_bounds *bounds, fb_sample_kind kind, double number, fb_dtype dtype) {
    fb_dtype_range range;
    switch (kind) {
    case FB_SAMPLE_EQUAL: return 0.5;
    case FB_SAMPLE_ZERO: return copysign(0, number);
    case FB_SAMPLE_SMALL: return number * SMALL;
    case FB_SAMPLE_LARGE: return number * LARGE;
    case FB_SAMPLE_NEGATIVE: return -fabs(number);
    case FB_SAMPLE_REPEATED: return repeated(bounds, number, dtype);
    case FB_SAMPLE_DENORMAL: return fb_dtype_limits(dtype, &range) ? number * range.smallest_normal / 4 : number;
    default: return number;
    }
}

/* Every other integer becomes a bound that is one, and within the table. */
static int64_t changed_integer(const fb_bounds *bounds, fb_sample_kind kind, int64_t number, int64_t i, int64_t high) {
    if (kind == FB_SAMPLE_EQUAL || kind == FB_SAMPLE_ZERO) return kind == FB_SAMPLE_EQUAL && high > 1;
    if (kind != FB_SAMPLE_REPEATED || !bounds->count || i % 2) return number;
    double bound = bounds->numbers[(size_t)(i / 2) % bounds->count];
    return bound >= 0 && bound == floor(bound) && (high <= 2 || bound < (double)high) ? (int64_t)bound : number;
}

/* Rounds a number as an evaluation in the dtype itself sees it. */
static double narrowed(double number, fb_dtype dtype) {
    return dtype == FB_FLOAT64 ? number : (double)(float)number;
}

void fb_sample_change(const fb_bounds *bounds, fb_sample_kind kind, const fb_array *array, int64_t high) {
    int64_t count = fb_array_count(array) * (fb_dtype_is_complex(array->dtype) ? 2 : 1);
    fb_dtype dtype = fb_dtype_part(array->dtype);
    void *data = fb_array_data(array);
    for (int64_t i = 0; i < count && fb_work_at(fb_array_work(array), i, count); i++) {
        switch (array->held) {
        case FB_HELD_BOOL:
            if (kind == FB_SAMPLE_EQUAL || kind == FB_SAMPLE_ZERO) ((unsigned char *)data)[i] = kind == FB_SAMPLE_EQUAL;
            break;
        case FB_HELD_INT: ((int64_t *)data)[i] = changed_integer(bounds, kind, ((int64_t *)data)[i], i, high); break;
        case FB_HELD_DOUBLE:
        case FB_HELD_COMPLEX_DOUBLE:
            ((double *)data)[i] = narrowed(changed(bounds, kind, ((double *)data)[i], dtype), dtype);
            break;
        case FB_HELD_FLOAT:
        case FB_HELD_COMPLEX_FLOAT: ((float *)data)[i] = (float)changed(bounds, kind, ((float *)data)[i], dtype); break;
        default: break;
        }
    }
    bool is_half = array->dtype == FB_FLOAT16 || array->dtype == FB_BFLOAT16;
    if (is_half && array->held == FB_HELD_DOUBLE) fb_array_round_values(array);
    else fb_array_round(array);
}

/* ---- tables -------------------------------------------------------------------------------------------------------------- */

static int64_t rows_within(const fb_graph *graph, fb_node node, int depth) {
    int64_t most = 0;
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e)) {
        fb_node user = fb_edge_user(graph, e);
        const fb_node_row *row = fb_node_at(graph, user);
        int64_t rows = 0;
        if (fb_node_op(graph, user) == FB_OP_EMBEDDING) {
            fb_node weight = fb_value_node(graph, fb_call_argument(graph, user, "weight"));
            fb_tensor table = {0};
            if (row->opcode == FB_CALL_MODULE) table = fb_module_tensor(graph, row->module, "weight");
            else if (weight.id && fb_node_at(graph, weight)->opcode == FB_GET_ATTR && fb_node_at(graph, weight)->attribute.id)
                table = fb_module_tensor(graph, fb_node_at(graph, weight)->module,
                                         fb_text(graph, fb_node_at(graph, weight)->attribute));
            if (table.id) rows = fb_shape_size(graph, fb_tensor_at(graph, table)->shape, 0);
            else if (weight.id && fb_node_at(graph, weight)->shape.id)
                rows = fb_shape_size(graph, fb_node_at(graph, weight)->shape, 0);
        } else if (depth && row->dtype && row->dtype == fb_node_at(graph, node)->dtype &&
                   fb_op_effects(graph, user).may_alias_input) {
            rows = rows_within(graph, user, depth - 1);
        }
        if (rows > 0 && (!most || rows < most)) most = rows;
    }
    return most;
}

int64_t fb_table_rows(const fb_graph *graph, fb_node node) {
    return rows_within(graph, node, MOST_VIEWS);
}

/* ---- dtypes -------------------------------------------------------------------------------------------------------------- */

double fb_smallest_of(fb_dtype dtype) {
    fb_dtype_range range;
    if (!fb_dtype_limits(fb_dtype_part(dtype), &range)) return 0;
    return range.smallest_subnormal * fmax(8, ldexp(1, range.mantissa_bits - 11));
}
