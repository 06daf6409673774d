/* Random numbers that are the same everywhere: integers alone, no libm. */
#include <string.h>

#include "core/evaluator/internal.h"
#include "core/weights/dtype.h"

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. Draw `number`, counted from 0, of the
 * stream that begins with `state`: any part of a stream may be drawn. */
static inline uint64_t draw(uint64_t state, uint64_t number) {
    uint64_t z = state + (number + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

static uint64_t state_of(uint64_t seed, const char *name) {
    uint64_t hash = 0xcbf29ce484222325U ^ seed; /* FNV-1a */
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3U;
    return hash;
}

/* A number of standard deviation 1, uniform within ±√3. */
static double number_of(uint32_t half) {
    return (double)(int32_t)half * (1.7320508075688772 / 0x1p31);
}

#define DRAWN_AT_ONCE 1024 /* even */

/* Numbers first … first + count of a stream, two from one draw; DRAWN_AT_ONCE at most. */
static void draw_many(uint64_t state, uint64_t first, int64_t count, double mean, double deviation, double *to) {
    int64_t odd = (int64_t)(first % 2);
    uint64_t bits[DRAWN_AT_ONCE / 2 + 1];
    uint32_t halves[DRAWN_AT_ONCE + 2];
    for (int64_t i = 0; i < (count + odd + 1) / 2; i++) bits[i] = draw(state, first / 2 + (uint64_t)i);
    for (int64_t i = 0; i < (count + odd + 1) / 2; i++) {
        halves[2 * i] = (uint32_t)bits[i];
        halves[2 * i + 1] = (uint32_t)(bits[i] >> 32);
    }
    for (int64_t i = 0; i < count; i++) to[i] = mean + deviation * number_of(halves[i + odd]);
}

/* `array` is contiguous. */
static void draw_floats(const fb_array *array, uint64_t state, double deviation) {
    int64_t count = fb_array_count(array);
    double part[DRAWN_AT_ONCE];
    for (int64_t from = 0, size; from < count && fb_work_goes_on(fb_array_work(array), DRAWN_AT_ONCE); from += size) {
        size = count - from < DRAWN_AT_ONCE ? count - from : DRAWN_AT_ONCE;
        draw_many(state, (uint64_t)from, size, 0, deviation, part);
        /* Rounded to float32 in both precisions, so that evaluations in either see the same numbers. */
        if (array->held == FB_HELD_DOUBLE) {
            double *to = (double *)fb_array_data(array) + from;
            for (int64_t i = 0; i < size; i++) to[i] = (double)(float)part[i];
        } else {
            float *to = (float *)fb_array_data(array) + from;
            for (int64_t i = 0; i < size; i++) to[i] = (float)part[i];
        }
    }
    bool is_half = array->dtype == FB_FLOAT16 || array->dtype == FB_BFLOAT16;
    if (is_half && array->held == FB_HELD_DOUBLE) fb_array_round_values(array);
    else fb_array_round(array);
}

/* Keeps what was drawn, unless the work has been stopped meanwhile. */
static fb_status drawn(fb_array **array, fb_error *error) {
    fb_status status = fb_work_status(fb_array_work(*array), error);
    if (!status) return FB_OK;
    fb_array_drop(*array);
    *array = NULL;
    return status;
}

fb_status fb_random_array(fb_array_memory *memory, fb_dtype dtype, int rank, const int64_t *sizes, uint64_t seed,
                          const char *name, double deviation, int64_t high, fb_array **out, fb_error *error) {
    uint64_t state = state_of(seed, name);
    fb_status status = fb_array_new(memory, dtype, rank, sizes, out, error);
    if (status) return status;
    if (fb_dtype_is_complex(dtype)) {
        fb_array parts = fb_array_part_of(*out, false);
        parts.rank = 1;
        parts.sizes[0] = 2 * fb_array_count(*out);
        parts.strides[0] = 1;
        draw_floats(&parts, state, deviation);
        return drawn(out, error);
    }
    if (fb_dtype_is_floating(dtype)) {
        draw_floats(*out, state, deviation);
        return drawn(out, error);
    }
    int64_t count = fb_array_count(*out);
    for (int64_t i = 0; i < count && fb_work_at(fb_array_work(*out), i, count); i++) {
        uint64_t number = draw(state, (uint64_t)i) >> 1;
        if ((*out)->held == FB_HELD_BOOL) ((unsigned char *)fb_array_data(*out))[i] = number & 1;
        else ((int64_t *)fb_array_data(*out))[i] = (int64_t)(number % (uint64_t)(high > 0 ? high : 1));
    }
    fb_array_round(*out);
    return drawn(out, error);
}

/* The attribute's name decides, as PyTorch's modules call theirs: the last part of the tensor's name without "@…". */
static bool is_called(const char *name, const char *attribute) {
    size_t length = strcspn(name, "@"), wanted = strlen(attribute);
    return length >= wanted && strncmp(name + length - wanted, attribute, wanted) == 0;
}

/* Their mean and standard deviation: values should neither grow nor vanish from layer to layer, and variances are positive. */
void fb_random_distribution(const fb_graph *graph, fb_tensor tensor, double *mean, double *deviation) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    const char *name = fb_text(graph, row->name);
    double inputs = 1; /* of one output */
    int rank = fb_shape_rank(graph, row->shape);
    for (int i = 1; i < rank; i++) inputs *= (double)fb_shape_size(graph, row->shape, i);
    *mean = rank <= 1 && is_called(name, "weight") ? 1 : 0;
    *deviation = rank > 1 ? 1 : 0.25;
    for (double scale = 1; rank > 1 && scale * scale < inputs; scale *= 2) *deviation /= 2;
    if (is_called(name, "running_var")) *mean = 1; /* within 1 ± 0.87 */
}

void fb_random_weight(const fb_graph *graph, fb_tensor tensor, uint64_t seed, int64_t first, int64_t count,
                      unsigned char *bytes, fb_work *work) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    size_t element = fb_dtype_size(dtype);
    uint64_t state = state_of(seed, fb_text(graph, row->name));
    double mean, deviation, part[DRAWN_AT_ONCE];
    fb_random_distribution(graph, tensor, &mean, &deviation);
    bool is_floating = fb_dtype_is_floating(dtype);
    for (int64_t from = 0, size; is_floating && from < count && fb_work_goes_on(work, DRAWN_AT_ONCE); from += size) {
        size = count - from < DRAWN_AT_ONCE ? count - from : DRAWN_AT_ONCE;
        draw_many(state, (uint64_t)(first + from), size, mean, deviation, part);
        unsigned char *to = bytes + (size_t)from * element;
        if (fb_dtype_is_computed(dtype)) fb_encode_numbers(dtype, part, (size_t)size, to);
        else
            for (int64_t i = 0; i < size; i++) fb_dtype_encode(dtype, part[i], to + (size_t)i * element);
    }
    for (int64_t i = 0; !is_floating && i < count && fb_work_at(work, i, count); i++, bytes += element) {
        memset(bytes, 0, element);
        bytes[0] = (unsigned char)(draw(state, (uint64_t)(first + i)) >> 63);
    }
}
