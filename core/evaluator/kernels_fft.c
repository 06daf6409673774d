/* Discrete Fourier transforms: torch.fft, and the three operators of ATen that it comes down to.
 *
 * They are computed in double, of any length: powers of two by halving (Cooley and Tukey), other lengths as a convolution with
 * a chirp, whose length is a power of two (Bluestein). Own code, as no library of Debian can be stopped within a transform. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/internal.h"
#include "core/evaluator/loops.h"

typedef double _Complex number;

/* ---- one line ------------------------------------------------------------------------------------------------------------ */

/* A transform of lines of `count` numbers, sum over k of x[k] exp(sign 2 pi i j k / count). */
typedef struct transform {
    fb_kernel_call *call;
    int64_t count, padded; /* padded: the power of two that lines are transformed in */
    number *roots;         /* exp(-2 pi i k / padded), k < padded / 2 */
    number *chirp;         /* exp(-pi i k² / count), k < count, where count is not a power of two */
    number *filter;        /* the transform of the chirp's conjugate */
    number *line;          /* padded numbers: given and returned */
} transform;

static bool is_power_of_two(int64_t count) {
    return (count & (count - 1)) == 0;
}

/* exp(-2 pi i k / n), k < n: the angle is reduced before it is rounded. */
static number root_of(int64_t k, int64_t n) {
    double angle = 2 * M_PI * ((double)k / (double)n);
    return CMPLX(cos(angle), -sin(angle));
}

#define STEPS_OF_A_BUTTERFLY 4
#define STEPS_OF_A_ROOT 40

/* The forward transform of padded numbers, in place. */
static void halve(const transform *t, number *x) {
    int64_t n = t->padded;
    for (int64_t i = 1, j = 0; i < n && fb_kernel_goes_on(t->call, 2); i++) { /* in the order of reversed bits */
        int64_t bit = n >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j |= bit;
        if (i < j) {
            number swapped = x[i];
            x[i] = x[j];
            x[j] = swapped;
        }
    }
    for (int64_t half = 1; half < n; half *= 2) {
        for (int64_t pair = 0; pair < n / 2 && fb_kernel_goes_on(t->call, STEPS_OF_A_BUTTERFLY); pair++) {
            int64_t k = pair & (half - 1), at = 2 * (pair - k) + k;
            number odd = fb_complex_product(x[at + half], t->roots[k * (n / (2 * half))]), even = x[at];
            x[at] = even + odd;
            x[at + half] = even - odd;
        }
    }
}

static void conjugate(fb_work *work, number *x, int64_t count) {
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) x[i] = conj(x[i]);
}

static void clear(fb_work *work, number *x, int64_t count) {
    for (int64_t i = 0; i < count && fb_work_at(work, i, count); i++) x[i] = 0;
}

/* The line becomes its transform, or the inverse one without the division by count. */
static void run(const transform *t, bool is_inverse) {
    number *x = t->line;
    fb_work *work = fb_call_work(t->call);
    int64_t count = t->count, padded = t->padded;
    if (is_inverse) conjugate(work, x, count);
    if (!t->chirp) {
        halve(t, x);
    } else {
        for (int64_t k = 0; k < count && fb_work_at(work, k, count); k++) x[k] = fb_complex_product(x[k], t->chirp[k]);
        clear(work, x + count, padded - count);
        halve(t, x);
        for (int64_t k = 0; k < padded && fb_work_at(work, k, padded); k++) x[k] = conj(fb_complex_product(x[k], t->filter[k]));
        halve(t, x);
        for (int64_t k = 0; k < count && fb_work_at(work, k, count); k++)
            x[k] = fb_complex_product(conj(x[k]) / (double)padded, t->chirp[k]);
    }
    if (is_inverse) conjugate(work, x, count);
}

static void end(transform *t) {
    fb_free_workspace(t->call, t->roots, t->padded / 2 + 1, sizeof(number));
    fb_free_workspace(t->call, t->line, t->padded, sizeof(number));
    fb_free_workspace(t->call, t->chirp, t->count, sizeof(number));
    fb_free_workspace(t->call, t->filter, t->padded, sizeof(number));
}

/* For `lines` lines; false: the call has failed. end() in any case. */
static bool begin(fb_kernel_call *call, int64_t count, double lines, transform *t) {
    *t = (transform){.call = call, .count = count, .padded = 1};
    bool is_plain = is_power_of_two(count);
    if (count > (int64_t)1 << 40) return fb_kernel_unsupported(call, "it is too long") == FB_OK;
    while (t->padded < (is_plain ? count : 2 * count - 1)) t->padded *= 2;
    double passes = is_plain ? 1 : 2, size = (double)t->padded;
    double steps = lines * passes * size * (2 + STEPS_OF_A_BUTTERFLY * (log2(size) + 1) / 2) + 2 * STEPS_OF_A_ROOT * size;
    if (!fb_kernel_takes(call, steps)) return false;
    t->roots = fb_make_workspace(call, t->padded / 2 + 1, sizeof(number));
    t->line = fb_make_workspace(call, t->padded, sizeof(number));
    if (!is_plain) {
        t->chirp = fb_make_workspace(call, count, sizeof(number));
        t->filter = fb_make_workspace(call, t->padded, sizeof(number));
    }
    if (call->status) return false;
    for (int64_t k = 0; k < t->padded / 2 && fb_kernel_goes_on(call, STEPS_OF_A_ROOT); k++) t->roots[k] = root_of(k, t->padded);
    if (is_plain) return !call->status;
    clear(fb_call_work(call), t->filter, t->padded);
    int64_t square = 0; /* k² modulo 2 count: the angle k² / (2 count) of a turn loses no digit */
    for (int64_t k = 0; k < count && fb_kernel_goes_on(call, STEPS_OF_A_ROOT);
         square = (square + 2 * k + 1) % (2 * count), k++) {
        t->chirp[k] = root_of(square, 2 * count);
        t->filter[k] = t->filter[k ? t->padded - k : 0] = conj(t->chirp[k]);
    }
    halve(t, t->filter);
    return !call->status;
}

/* ---- along a dimension --------------------------------------------------------------------------------------------------- */

/* The transform of each line along a dimension: its first numbers are read (what is beyond it is 0), it is transformed and
 * scaled. */
typedef struct along {
    int dim;
    int64_t count; /* of the transform */
    bool is_inverse;
    bool is_half; /* read: the numbers left out are the conjugates of those that are there, as of a real result */
    double scale;
} along;

static void read_line(const transform *t, const along *how, const number *source, int64_t given, int64_t step) {
    int64_t count = how->count, half = how->is_half ? count / 2 + 1 : count, read = given < half ? given : half;
    fb_work *work = fb_call_work(t->call);
    number *line = t->line;
    int64_t steps = fb_work_steps_at(step * (int64_t)sizeof *source);
    for (int64_t k = 0; k < read && fb_work_goes_on(work, steps); k++) line[k] = source[k * step];
    clear(work, line + read, count - read);
    if (!how->is_half) return;
    line[0] = creal(line[0]);
    if (count % 2 == 0) line[count / 2] = creal(line[count / 2]);
    for (int64_t k = half; k < count && fb_work_at(work, k, count); k++) line[k] = conj(line[count - k]);
}

static void write_line(const transform *t, const along *how, void *target, bool is_real, int64_t wanted, int64_t step) {
    fb_work *work = fb_call_work(t->call);
    const number *line = t->line;
    double scale = how->scale;
    int64_t steps = fb_work_steps_at(step * (int64_t)sizeof *line);
    for (int64_t k = 0; k < wanted && fb_work_goes_on(work, steps); k++) {
        if (is_real) ((double *)target)[k * step] = creal(line[k]) * scale;
        else ((number *)target)[k * step] = line[k] * scale;
    }
}

/* Every line of `from` along a dimension, into the same lines of `to`: both complex and held as doubles, or `to` real. */
static void transform_lines(const transform *t, const along *how, const fb_array *to, const fb_array *from) {
    int64_t given = from->sizes[how->dim], wanted = to->sizes[how->dim];
    int64_t from_step = from->strides[how->dim], to_step = to->strides[how->dim];
    fb_walk walk;
    fb_array starts = *from, ends = *to;
    fb_array_remove_dim(&starts, how->dim);
    fb_array_remove_dim(&ends, how->dim);
    bool is_real = to->held == FB_HELD_DOUBLE;
    for (fb_walk_begin(&walk, &ends, &starts, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count && fb_kernel_goes_on(t->call, 1); i++) {
            read_line(t, how, (const number *)walk.data[1] + i * walk.strides[1], given, from_step);
            run(t, how->is_inverse);
            char *target = (char *)walk.data[0] + i * walk.strides[0] * (int64_t)walk.element[0];
            write_line(t, how, target, is_real, wanted, to_step);
        }
    }
}

/* *array is replaced by its transform, of `wanted` numbers along the dimension. */
static void apply(fb_kernel_call *call, const along *how, int64_t wanted, fb_dtype dtype, fb_array **array) {
    int64_t sizes[FB_MAX_RANK];
    fb_array *from = *array, *to = NULL;
    transform t = {0};
    if (call->status) return;
    memcpy(sizes, from->sizes, sizeof sizes);
    sizes[how->dim] = wanted;
    to = fb_make_array(call, dtype, from->rank, sizes);
    double lines = to && wanted ? (double)fb_array_count(to) / (double)wanted : 0;
    if (to && fb_array_count(to) && begin(call, how->count, lines, &t)) transform_lines(&t, how, to, from);
    if (t.call) end(&t);
    fb_array_drop(from);
    *array = to;
}

/* ---- many dimensions ----------------------------------------------------------------------------------------------------- */

typedef enum kind { COMPLEX_TO_COMPLEX, REAL_TO_COMPLEX, COMPLEX_TO_REAL } kind;

/* A requested transform; dims are in the order of the call, the last one is the real side's. */
typedef struct request {
    kind kind;
    bool is_inverse;  /* exp(+ …) */
    bool is_onesided; /* of REAL_TO_COMPLEX: only the first half of the last dimension is returned */
    bool conjugates;  /* the input of hfft, the result of ihfft */
    int count;
    int64_t dims[FB_MAX_RANK];
    int64_t sizes[FB_MAX_RANK]; /* of the transforms: of the real side, where there is one */
    double scale;               /* of the whole */
} request;

static bool check(fb_kernel_call *call, const request *r, const fb_array *input) {
    bool is_complex = fb_dtype_is_complex(input->dtype);
    if (input->dtype == FB_FLOAT16 || input->dtype == FB_BFLOAT16)
        return fb_kernel_fail(call, "it is not defined for %s", fb_dtype_name(input->dtype)) == FB_OK;
    if (is_complex && r->kind == REAL_TO_COMPLEX) return fb_kernel_fail(call, "its input is complex") == FB_OK;
    if (fb_array_count(input) == 0) return fb_kernel_unsupported(call, "it is of nothing") == FB_OK;
    for (int i = 0; i < r->count; i++) {
        if (r->sizes[i] < 1) return fb_kernel_fail(call, "a transform has %lld points", (long long)r->sizes[i]) == FB_OK;
        for (int k = 0; k < i; k++)
            if (r->dims[k] == r->dims[i]) return fb_kernel_fail(call, "a dimension is named twice") == FB_OK;
    }
    return true;
}

/* All in complex128, rounded to the result's dtype at the end. */
static fb_array *compute(fb_kernel_call *call, const request *r, fb_array *input) {
    if (!check(call, r, input)) return NULL;
    bool is_double = input->dtype == FB_FLOAT64 || input->dtype == FB_COMPLEX128, is_real = r->kind == COMPLEX_TO_REAL;
    int last = r->count - 1;
    fb_array *now = fb_make_cast(call, input, FB_COMPLEX128);
    if (now && r->conjugates && is_real) conjugate(&call->memory->work, fb_array_data(now), fb_array_count(now));
    /* Of real numbers the last dimension first, as the others are complex then; to real numbers it comes last. */
    for (int i = 0; i <= last && now; i++) {
        int at = is_real ? i : last - i;
        along how = {(int)r->dims[at], r->sizes[at], r->is_inverse, is_real && at == last, i == 0 ? r->scale : 1};
        bool is_halved = r->kind == REAL_TO_COMPLEX && r->is_onesided && at == last;
        apply(call, &how, is_halved ? how.count / 2 + 1 : how.count, how.is_half ? FB_FLOAT64 : FB_COMPLEX128, &now);
    }
    if (now && r->conjugates && !is_real) conjugate(&call->memory->work, fb_array_data(now), fb_array_count(now));
    fb_dtype dtype = is_real ? (is_double ? FB_FLOAT64 : FB_FLOAT32) : is_double ? FB_COMPLEX128 : FB_COMPLEX64;
    fb_array *out = now ? fb_make_cast(call, now, dtype) : NULL;
    fb_array_drop(now);
    return out;
}

static double points(const request *r) {
    double all = 1;
    for (int i = 0; i < r->count; i++) all *= (double)r->sizes[i];
    return all;
}

/* ---- torch.fft ----------------------------------------------------------------------------------------------------------- */

static bool read_norm(fb_kernel_call *call, request *r) {
    const char *norm;
    if (!fb_argument_text(call, "norm", &norm)) return false;
    bool is_ortho = strcmp(norm, "ortho") == 0, is_forward = strcmp(norm, "forward") == 0;
    if (*norm && !is_ortho && !is_forward && strcmp(norm, "backward") != 0)
        return fb_kernel_fail(call, "%s is not a normalization", norm) == FB_OK;
    /* hfft is a forward transform to real numbers, ihfft an inverse one of them. */
    bool is_backward_transform = r->is_inverse != r->conjugates;
    r->scale = is_ortho ? 1 / sqrt(points(r)) : is_forward == !is_backward_transform ? 1 / points(r) : 1;
    return true;
}

/* Reads the transform from the function's name: "irfft2", or "fft_irfft2". */
static request request_of(const char *name) {
    if (strncmp(name, "fft_", 4) == 0) name += 4;
    bool is_inverse = *name == 'i';
    name += is_inverse;
    request r = {.is_inverse = is_inverse, .is_onesided = true};
    if (*name == 'r') r.kind = is_inverse ? COMPLEX_TO_REAL : REAL_TO_COMPLEX;
    if (*name == 'h') { /* hfft(x) is the forward transform of the spectrum whose half x is: irfft of conj(x) */
        r.kind = is_inverse ? REAL_TO_COMPLEX : COMPLEX_TO_REAL;
        r.is_inverse = !is_inverse;
        r.conjugates = true;
    }
    return r;
}

/* The size of a transform that is not given. */
static int64_t size_of(const request *r, const fb_array *input, int i) {
    int64_t size = input->sizes[r->dims[i]];
    return r->kind == COMPLEX_TO_REAL && i == r->count - 1 ? 2 * (size - 1) : size;
}

static fb_status finish(fb_kernel_call *call, request *r, fb_array *input, fb_object *result) {
    return read_norm(call, r) ? fb_return_array(call, compute(call, r, input), result) : call->status;
}

/* fft, ifft, rfft, irfft, hfft, ihfft (input, n, dim, norm) */
static fb_status kernel_fft(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    request r = request_of(fb_call_spelling(call));
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!input->rank) return fb_kernel_fail(call, "a tensor without dimensions has none to transform");
    r.count = 1;
    r.dims[0] = input->rank - 1;
    if (fb_argument_is_given(call, "dim") && !fb_argument_axis(call, "dim", input->rank, &r.dims[0])) return call->status;
    if (!fb_argument_int(call, "n", size_of(&r, input, 0), &r.sizes[0])) return call->status;
    return finish(call, &r, input, result);
}

/* The dimensions of fftn and its relatives: those named, else the last as many as sizes are given, else all; of fft2 the last
 * two. */
static bool read_dims(fb_kernel_call *call, const fb_array *input, int sizes, int *count, int64_t dims[FB_MAX_RANK]) {
    bool is_of_two = strchr(fb_call_spelling(call), '2') != NULL;
    if (!fb_argument_ints(call, "dim", dims, count)) return false;
    if (*count < 0) {
        *count = is_of_two ? 2 : sizes >= 0 ? sizes : input->rank;
        for (int i = 0; i < *count; i++) dims[i] = i - *count;
    }
    for (int i = 0; i < *count; i++) {
        if (dims[i] < 0) dims[i] += input->rank;
        if (dims[i] < 0 || dims[i] >= input->rank) return fb_kernel_fail(call, "it lacks a dimension that is named") == FB_OK;
    }
    return true;
}

/* fftn, ifftn, rfftn, irfftn, fft2, ifft2, rfft2, irfft2 (input, s, dim, norm) */
static fb_status kernel_fft_many(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    request r = request_of(fb_call_spelling(call));
    int given;
    int64_t sizes[FB_MAX_RANK];
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, "s", sizes, &given) ||
        !read_dims(call, input, given, &r.count, r.dims))
        return call->status;
    if (given >= 0 && given != r.count) return fb_kernel_fail(call, "it has %d sizes for %d dimensions", given, r.count);
    if (!r.count && r.kind != COMPLEX_TO_COMPLEX) return fb_kernel_fail(call, "it has no dimension to transform");
    for (int i = 0; i < r.count; i++) {
        bool is_given = given >= 0 && sizes[i] != -1;
        r.sizes[i] = is_given ? sizes[i] : size_of(&r, input, i);
    }
    return finish(call, &r, input, result);
}

/* ---- ATen ---------------------------------------------------------------------------------------------------------------- */

/* _fft_r2c(input, dim, normalization, onesided), _fft_c2c(input, dim, normalization, forward), _fft_c2r(input, dim,
 * normalization, last_dim_size). Normalization: 0 none, 1 by the root of the number of points, 2 by the number; see
 * aten/src/ATen/native/SpectralOpsUtils.h. */
static fb_status kernel_fft_aten(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    request r = {.is_onesided = true};
    int64_t normalization;
    bool is_forward = call->op != FB_OP_FFT_C2R;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, "dim", r.dims, &r.count) ||
        !fb_argument_int(call, "normalization", 0, &normalization))
        return call->status;
    r.kind = call->op == FB_OP_FFT_R2C ? REAL_TO_COMPLEX : call->op == FB_OP_FFT_C2R ? COMPLEX_TO_REAL : COMPLEX_TO_COMPLEX;
    if (normalization < 0 || normalization > 2) return fb_kernel_fail(call, "its normalization is not known");
    if (call->op == FB_OP_FFT_C2C && !fb_argument_bool(call, "forward", true, &is_forward)) return call->status;
    if (call->op == FB_OP_FFT_R2C && !fb_argument_bool(call, "onesided", true, &r.is_onesided)) return call->status;
    if (fb_dtype_is_complex(input->dtype) == (r.kind == REAL_TO_COMPLEX))
        return fb_kernel_fail(call, "it is not defined for %s", fb_dtype_name(input->dtype));
    r.is_inverse = !is_forward;
    for (int i = 0; i < r.count; i++) {
        if (r.dims[i] < 0) r.dims[i] += input->rank;
        if (r.dims[i] < 0 || r.dims[i] >= input->rank) return fb_kernel_fail(call, "it lacks a dimension that is named");
        r.sizes[i] = input->sizes[r.dims[i]];
    }
    if (r.count && r.kind == COMPLEX_TO_REAL && !fb_argument_int(call, "last_dim_size", 0, &r.sizes[r.count - 1]))
        return call->status;
    r.scale = normalization == 0 ? 1 : normalization == 1 ? 1 / sqrt(points(&r)) : 1 / points(&r);
    return fb_return_array(call, compute(call, &r, input), result);
}

/* ---- frequencies --------------------------------------------------------------------------------------------------------- */

/* fftfreq, rfftfreq (n, d): the frequency of each result, in cycles by the unit of the sample spacing d. */
static fb_status kernel_fft_frequencies(fb_kernel_call *call, fb_object *result) {
    int64_t n;
    double spacing;
    fb_dtype dtype;
    if (!fb_argument_int(call, "n", -1, &n) || !fb_argument_number(call, "d", 1, &spacing) ||
        !fb_argument_dtype(call, FB_FLOAT32, &dtype))
        return call->status;
    bool is_half = strstr(fb_call_spelling(call), "rfftfreq") != NULL;
    if (n < 0 || (dtype != FB_FLOAT32 && dtype != FB_FLOAT64))
        return fb_kernel_unsupported(call, "its arguments are not known");
    int64_t count = is_half ? n / 2 + 1 : n;
    fb_array *out = fb_make_array(call, dtype, 1, &count);
    double unit = 1 / ((double)n * spacing);
    for (int64_t i = 0; i < count && out && fb_kernel_goes_on(call, 1); i++) {
        double index = (double)(is_half || i < (n + 1) / 2 ? i : i - n);
        fb_array_put(out, i, dtype == FB_FLOAT32 ? (double)((float)index * (float)unit) : index * unit);
    }
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_fft[] = {
    FB_KERNEL_COMPLEX(FFT, fft),
    FB_KERNEL_COMPLEX(FFT_MANY, fft_many),
    FB_KERNEL_COMPLEX(FFT_R2C, fft_aten),
    FB_KERNEL_COMPLEX(FFT_C2C, fft_aten),
    FB_KERNEL_COMPLEX(FFT_C2R, fft_aten),
    FB_KERNEL(FFT_FREQUENCIES, fft_frequencies),
    FB_KERNELS_END,
};
