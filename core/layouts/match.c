/* Finding out what a layout does to a checkpoint: which rows are applied to which tensors, and what is refused. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/graph/build.h"
#include "core/layouts/internal.h"
#include "core/weights/invert.h"
#include "core/weights/weights_file.h"

typedef struct hit {
    uint32_t row, source;
    int64_t number;  /* what the counting variable captured */
    const char *key; /* the other captures */
    fb_layout_owned *owned;
    fb_layout_capture captures[CAPTURES_MAX + 1];
} hit;

typedef struct planner {
    fb_matcher *matcher;
    const fb_graph *graph;
    const fb_layout *layout;
    int64_t parameters[FB_LAYOUT_PARAMETERS_MAX];
    fb_layout_owned *owned; /* in document order */
    fb_layout_owned **by_name;
    size_t owned_count;
    fb_buffer hits;
    fb_buffer applications; /* pointers */
    bool *is_reversible;    /* of each row */
    size_t *applied, *refused;
    int64_t made; /* tensors, by all applications */
} planner;

static void *allocate(planner *p, size_t size) {
    void *memory = fb_arena_alloc(p->matcher->arena, size ? size : 1);
    if (memory) memset(memory, 0, size);
    else p->matcher->failed = true;
    return memory;
}

__attribute__((format(printf, 3, 4))) static void refuse(planner *p, const char *reason, const char *format, ...) {
    char detail[600];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    const char *kept = fb_arena_text(p->matcher->arena, reason, strlen(reason)); /* it may be an error's */
    if (kept) fb_refuse(p->matcher, kept, &(fb_node){0}, 0, "%s", detail);
    else p->matcher->failed = true;
}

/* The row's place in the document. */
static size_t place_of(const planner *p, const fb_layout_row *row) {
    return (size_t)((row->of ? row->of : row) - p->layout->rows);
}

#define REFUSE(p, application, reason, ...)                                                                                    \
    do {                                                                                                                       \
        (application)->is_refused = true;                                                                                      \
        (p)->refused[place_of(p, (application)->row)]++;                                                                       \
        refuse(p, reason, __VA_ARGS__);                                                                                        \
    } while (0)

/* ---- owners ------------------------------------------------------------------------------------------------------------- */

static void add_owned(planner *p, fb_module module, fb_value map, bool *is_seen) {
    const fb_graph *graph = p->graph;
    const char *path = fb_text(graph, fb_module_at(graph, module)->path);
    const fb_value_row *row = fb_value_at(graph, map);
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        if (fb_value_kind(graph, row->items[i + 1]) != FB_TENSOR) continue;
        const char *attribute = fb_value_text(graph, row->items[i]);
        size_t size = strlen(path) + strlen(attribute) + 2;
        char *name = allocate(p, size);
        if (!name) return;
        snprintf(name, size, "%s%s%s", path, *path ? "." : "", attribute);
        fb_tensor tensor = fb_value_tensor(graph, row->items[i + 1]);
        p->owned[p->owned_count++] = (fb_layout_owned){
            .name = name, .attribute = attribute, .module = module, .tensor = tensor, .is_tied = is_seen[tensor.id]};
        is_seen[tensor.id] = true;
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(fb_layout_owned *const *)a)->name, (*(fb_layout_owned *const *)b)->name);
}

static void list_owned(planner *p) {
    const fb_graph *graph = p->graph;
    size_t count = 0;
    for (fb_module m = fb_first_module(graph); m.id; m = fb_module_at(graph, m)->next)
        count += fb_value_at(graph, fb_module_at(graph, m)->parameters)->count +
                 fb_value_at(graph, fb_module_at(graph, m)->buffers)->count;
    bool *is_seen = calloc(fb_tensor_limit(graph) + 1, sizeof *is_seen);
    p->owned = allocate(p, count / 2 * sizeof *p->owned);
    p->by_name = allocate(p, count / 2 * sizeof(fb_layout_owned *));
    p->matcher->failed |= !is_seen;
    for (fb_module m = fb_first_module(graph); m.id && !p->matcher->failed; m = fb_module_at(graph, m)->next) {
        add_owned(p, m, fb_module_at(graph, m)->parameters, is_seen);
        add_owned(p, m, fb_module_at(graph, m)->buffers, is_seen);
    }
    free(is_seen);
    for (size_t i = 0; i < p->owned_count; i++) p->by_name[i] = &p->owned[i];
    if (!p->matcher->failed) fb_sort(p->by_name, p->owned_count, sizeof *p->by_name, by_name);
}

static fb_layout_owned *find_owned(const planner *p, const char *name, size_t length) {
    size_t low = 0, high = p->owned_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const char *other = p->by_name[middle]->name;
        int order = strncmp(other, name, length);
        if (!order && other[length]) order = 1;
        if (!order) return p->by_name[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* ---- parameters --------------------------------------------------------------------------------------------------------- */

/* False when a default cannot be computed; that is then refused. */
static bool read_parameters(planner *p) {
    fb_layout known = *p->layout;
    fb_layout_scope scope = {.layout = &known, .parameters = p->parameters, .graph = p->graph};
    for (known.parameter_count = 0; known.parameter_count < p->layout->parameter_count; known.parameter_count++) {
        const fb_layout_parameter *parameter = &p->layout->parameters[known.parameter_count];
        const json_t *given = json_object_get(p->matcher->params, parameter->name);
        int64_t *value = &p->parameters[known.parameter_count];
        fb_layout_names names = fb_layout_names_of(&scope);
        fb_error error = {0};
        if (given) *value = json_is_real(given) ? (int64_t)json_real_value(given) : json_integer_value(given);
        else if (fb_layout_number(parameter->fallback, &names, value, &error)) {
            refuse(p, error.code, "the parameter %s is not given, and its default cannot be computed: %s", parameter->name,
                   error.message);
            return false;
        }
    }
    return true;
}

/* ---- what rows name ----------------------------------------------------------------------------------------------------- */

static bool read_number(const fb_layout_capture *capture, int64_t *out) {
    *out = 0;
    if (!capture->length || capture->length > 9 || (capture->length > 1 && *capture->text == '0')) return false;
    for (size_t i = 0; i < capture->length; i++) {
        if (!isdigit((unsigned char)capture->text[i])) return false;
        *out = *out * 10 + (capture->text[i] - '0');
    }
    return true;
}

static const char *make_key(planner *p, const hit *h, size_t capture_count) {
    fb_buffer key = {0};
    for (size_t i = 0; i < capture_count; i++) {
        fb_buffer_append(&key, h->captures[i].text, h->captures[i].length);
        fb_buffer_char(&key, '\001');
    }
    const char *text = key.failed ? NULL : fb_arena_text(p->matcher->arena, key.data ? key.data : "", key.size);
    p->matcher->failed |= !text;
    fb_buffer_free(&key);
    return text;
}

static void list_hits(planner *p) {
    for (size_t r = 0; r < p->layout->all_count; r++) {
        const fb_layout_row *row = &p->layout->rows[r];
        for (size_t s = 0; s < row->source_count; s++) {
            const fb_layout_source *source = &row->sources[s];
            for (size_t i = 0; i < p->owned_count && fb_matcher_goes_on(p->matcher); i++) {
                hit h = {.row = (uint32_t)r, .source = (uint32_t)s, .owned = &p->owned[i]};
                if (!fb_layout_matches(&source->pattern, h.owned->name, h.captures)) continue;
                if (source->each.variable && !read_number(&h.captures[EACH], &h.number)) continue;
                h.key = make_key(p, &h, row->capture_count);
                fb_buffer_append(&p->hits, &h, sizeof h);
            }
        }
    }
    p->matcher->failed |= p->hits.failed;
}

static int by_application(const void *a, const void *b) {
    const hit *one = a, *two = b;
    if (one->row != two->row) return one->row < two->row ? -1 : 1;
    int order = strcmp(one->key, two->key);
    if (order) return order;
    if (one->source != two->source) return one->source < two->source ? -1 : 1;
    return (one->number > two->number) - (one->number < two->number);
}

/* The name that is missing; `number` of what is counted. */
static void refuse_incomplete(planner *p, fb_layout_application *application, size_t source, int64_t number, const hit *there) {
    const fb_layout_source *missing = &application->row->sources[source];
    char digits[24];
    fb_layout_capture captures[CAPTURES_MAX + 1];
    memcpy(captures, application->captures, sizeof captures);
    captures[EACH] = (fb_layout_capture){digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number)};
    fb_buffer name = {0};
    fb_layout_spell(&missing->pattern, captures, &name);
    REFUSE(p, application, "incomplete", "%s is there, but %s is not", there->owned->name,
           fb_buffer_text(&name) ? fb_buffer_text(&name) : missing->name);
    fb_buffer_free(&name);
}

/* Takes the tensors that belong to weights: each is one tensor, and may be missing where that has a meaning. */
static void take_adapters(planner *p, fb_layout_application *application, const hit *hits, size_t count) {
    const fb_layout_row *of = application->row->of;
    application->weights = allocate(p, of->source_count * sizeof *application->weights);
    for (size_t i = 0; i < count && !p->matcher->failed; i++) {
        fb_layout_owned **tensors = allocate(p, sizeof(fb_layout_owned *));
        if (tensors) *tensors = hits[i].owned;
        application->tensors[hits[i].source] = tensors;
        application->counts[hits[i].source] = 1;
    }
    fb_buffer name = {0};
    for (size_t i = 0; i < of->source_count && !p->matcher->failed; i++) {
        name.size = 0;
        fb_layout_spell(&of->sources[i].pattern, application->captures, &name);
        const char *text = name.failed ? NULL : fb_arena_text(p->matcher->arena, name.data, name.size);
        p->matcher->failed |= !text;
        if (text)
            application->weights[i] =
                (fb_layout_weight){.name = text, .owned = find_owned(p, text, name.size), .sizes = {-1, -1}};
    }
    fb_buffer_free(&name);
}

/* Adds the application of a run of hits with one row and one key. */
static void add_application(planner *p, const hit *hits, size_t count) {
    fb_layout_application *application = allocate(p, sizeof *application);
    if (!application) return;
    application->row = &p->layout->rows[hits[0].row];
    memcpy(application->captures, hits[0].captures, sizeof application->captures);
    if (application->row->of) {
        take_adapters(p, application, hits, count);
        fb_buffer_append(&p->applications, &application, sizeof application);
        return;
    }
    fb_layout_scope scope = {.layout = p->layout, .parameters = p->parameters, .graph = p->graph};
    size_t at = 0;
    for (size_t s = 0; s < application->row->source_count && !application->is_refused && !p->matcher->failed; s++) {
        const fb_layout_source *source = &application->row->sources[s];
        int64_t needed = 0, number = 0;
        fb_error error = {0};
        if (fb_layout_count_of(&scope, &source->each, &needed, &error)) {
            REFUSE(p, application, error.code, "%s: %s", hits[0].owned->name, error.message);
            break;
        }
        fb_layout_owned **tensors = allocate(p, (count - at) * sizeof(fb_layout_owned *));
        for (; tensors && at < count && hits[at].source == s && number < needed && hits[at].number == number; at++)
            tensors[number++] = hits[at].owned;
        application->tensors[s] = tensors;
        application->counts[s] = (size_t)number;
        if (number < needed) refuse_incomplete(p, application, s, number, &hits[at < count ? at : 0]);
        else if (needed == 0) REFUSE(p, application, "out-of-range", "%s is counted up to 0", source->pattern.text);
        else if (at < count && hits[at].source == s)
            REFUSE(p, application, "out-of-range", "%s is there, but %s counts to %lld only", hits[at].owned->name,
                   source->each.variable, (long long)needed - 1);
    }
    fb_buffer_append(&p->applications, &application, sizeof application);
}

static void list_applications(planner *p) {
    hit *hits = (hit *)(void *)p->hits.data;
    size_t count = p->hits.size / sizeof *hits;
    if (p->matcher->failed || !count) return;
    fb_sort(hits, count, sizeof *hits, by_application);
    for (size_t from = 0, to; from < count && fb_matcher_goes_on(p->matcher); from = to) {
        to = from + 1;
        while (to < count && hits[to].row == hits[from].row && strcmp(hits[to].key, hits[from].key) == 0) to++;
        add_application(p, &hits[from], to - from);
    }
    p->matcher->failed |= p->applications.failed;
}

/* ---- what speaks against an application --------------------------------------------------------------------------------- */

static fb_layout_application **applications_of(const planner *p, size_t *count) {
    *count = p->applications.size / sizeof(fb_layout_application *);
    return (fb_layout_application **)(void *)p->applications.data;
}

#define FOR_EACH_TENSOR(application, tensor_)                                                                                  \
    for (size_t s_ = 0; s_ < (application)->row->source_count; s_++)                                                           \
        for (size_t i_ = 0; i_ < (application)->counts[s_]; i_++)                                                              \
            for (fb_layout_owned *tensor_ = (application)->tensors[s_][i_]; tensor_; tensor_ = NULL)

const fb_layout_owned *fb_layout_first(const fb_layout_application *application) {
    FOR_EACH_TENSOR(application, owned) return owned;
    return NULL;
}

static void check_shape(planner *p, fb_layout_application *application, size_t s, const fb_layout_owned *owned) {
    const json_t *shape = application->row->sources[s].shape;
    fb_value sizes = fb_tensor_at(p->graph, owned->tensor)->shape;
    fb_layout_scope scope = {.layout = p->layout, .parameters = p->parameters, .graph = p->graph, .application = application};
    fb_layout_names names = fb_layout_names_of(&scope);
    int rank = fb_shape_rank(p->graph, sizes);
    if (!shape) return;
    if (rank != (int)json_array_size(shape)) {
        REFUSE(p, application, "shape-mismatch", "%s has %d dimensions, not %zu", owned->name, rank, json_array_size(shape));
        return;
    }
    for (int axis = 0; axis < rank && !application->is_refused; axis++) {
        const json_t *size = json_array_get(shape, (size_t)axis);
        int64_t wanted = -1, is = fb_layout_size(p->graph, owned->tensor, axis);
        fb_error error = {0};
        if (json_is_null(size)) continue;
        if (fb_layout_number(size, &names, &wanted, &error))
            REFUSE(p, application, error.code, "%s: %s", owned->name, error.message);
        else if (wanted != is && json_is_string(size))
            REFUSE(p, application, "shape-mismatch", "%s has %lld elements along dimension %d, not %s = %lld", owned->name,
                   (long long)is, axis, json_string_value(size), (long long)wanted);
        else if (wanted != is)
            REFUSE(p, application, "shape-mismatch", "%s has %lld elements along dimension %d, not %lld", owned->name,
                   (long long)is, axis, (long long)wanted);
    }
}

static void check_tensors(planner *p, fb_layout_application *application) {
    const fb_layout_owned *first = fb_layout_first(application);
    fb_dtype dtype = (fb_dtype)fb_tensor_at(p->graph, first->tensor)->dtype;
    FOR_EACH_TENSOR(application, owned) {
        fb_dtype own = (fb_dtype)fb_tensor_at(p->graph, owned->tensor)->dtype;
        if (application->is_refused) return;
        const char *noted =
            fb_value_text(p->graph, fb_map_value(p->graph, fb_tensor_at(p->graph, owned->tensor)->rest, FB_WEIGHTS_TIE));
        if (owned->is_tied) REFUSE(p, application, "tied", "%s is the same tensor as another one", owned->name);
        else if (noted)
            REFUSE(p, application, "tied", "the file's metadata notes %s beside %s: take the note out, or write both tensors",
                   noted, owned->name);
        else if (fb_map_value(p->graph, fb_tensor_at(p->graph, owned->tensor)->rest, FB_WEIGHTS_TORN).id)
            REFUSE(p, application, "cuts-block", "rows of %s end within an element of %s", owned->name, fb_dtype_name(own));
        else if (own != dtype)
            REFUSE(p, application, "dtype-mismatch", "%s is %s, and %s is %s", owned->name, fb_dtype_name(own), first->name,
                   fb_dtype_name(dtype));
        else if (!application->weights) check_shape(p, application, s_, owned);
    }
    fb_layout_scope scope = {.layout = p->layout, .parameters = p->parameters, .graph = p->graph, .application = application};
    fb_error error = {0};
    if (application->weights && !application->is_refused && fb_layout_check_adapters(&scope, &error))
        REFUSE(p, application, error.code, "%s", error.message);
    FOR_EACH_TENSOR(application, owned) owned->claims += !application->is_refused;
}

static void check_claims(planner *p, fb_layout_application *application) {
    FOR_EACH_TENSOR(application, owned) {
        if (owned->claims > 1 && !application->is_refused)
            REFUSE(p, application, "claimed-twice", "%s is read by %u rows, or in one row twice", owned->name, owned->claims);
    }
}

static int by_piece(const void *a, const void *b) {
    const fb_piece *one = a, *two = b;
    if (one->source.id != two->source.id) return one->source.id < two->source.id ? -1 : 1;
    int order = memcmp(one->start, two->start, (size_t)one->rank * sizeof *one->start);
    return order ? order : memcmp(one->stop, two->stop, (size_t)one->rank * sizeof *one->stop);
}

/* The index of this source's first piece, among sorted pieces. */
static size_t first_piece(const fb_pieces *pieces, fb_tensor source) {
    size_t low = 0, high = pieces->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (pieces->items[middle].source.id < source.id) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* True if every element of the sources is in the results: then changes of the results can be carried back. */
static bool has_everything(fb_graph *scratch, const fb_layout_application *application, fb_pieces *pieces) {
    bool has_all = true;
    const fb_piece **list = malloc((pieces->count + 1) * sizeof *list);
    if (!list) return fb_graph_fail_memory(scratch).id;
    fb_sort(pieces->items, pieces->count, sizeof *pieces->items, by_piece);
    FOR_EACH_TENSOR(application, owned) {
        fb_value shape = fb_tensor_at(scratch, owned->tensor)->shape;
        int64_t sizes[FB_RECIPE_MAX_RANK];
        bool is_empty = false;
        int rank = fb_shape_rank(scratch, shape);
        for (int axis = 0; axis < rank; axis++) is_empty |= !(sizes[axis] = fb_shape_size(scratch, shape, axis));
        size_t count = 0;
        for (size_t i = first_piece(pieces, owned->tensor); i < pieces->count; i++) {
            const fb_piece *piece = &pieces->items[i];
            if (piece->source.id != owned->tensor.id) break;
            bool is_copy = count && by_piece(list[count - 1], piece) == 0;
            if (!is_copy) list[count++] = piece;
        }
        has_all &= is_empty || (count && fb_pieces_join(scratch, list, count, sizes, rank).id != 0);
    }
    free(list);
    return has_all;
}

/* Makes the recipes in a copy of the graph in which no tensor has one: are they right, and can they be turned round? */
static void try_recipes(planner *p, fb_graph *scratch, fb_layout_application *application) {
    fb_layout_scope scope = {.layout = p->layout,
                             .parameters = p->parameters,
                             .graph = scratch,
                             .application = application,
                             .work = p->matcher->work};
    fb_pieces pieces = {0};
    fb_buffer name = {0};
    fb_error error = {0};
    bool can_be_undone = true;
    for (size_t t = 0; t < application->row->target_count && !error.status; t++) {
        const fb_layout_target *target = &application->row->targets[t];
        int64_t count = 0;
        scope.variable_count = 0;
        fb_layout_count_of(&scope, &target->each, &count, &error);
        p->made += count;
        if (!error.status && (count < 1 || count > FB_LAYOUT_PARTS_MAX || p->made > FB_LAYOUT_MADE_MAX))
            fb_fail(&error, FB_INVALID, "out-of-range", NULL, "%s is counted up to %lld", target->pattern.text,
                    (long long)count);
        for (int64_t i = 0; i < count && !error.status && fb_matcher_takes(p->matcher, 4); i++) {
            fb_layout_target_name(&scope, target, i, &name);
            fb_value recipe = fb_layout_recipe(scratch, &scope, target, &error);
            fb_recipe_type type;
            fb_tensor made = {0};
            bool is_computed = false;
            if (error.status || fb_recipe_type_of(scratch, recipe, &type, &error)) break;
            fb_symbol symbol = {0};
            char unique[40];
            snprintf(unique, sizeof unique, "\001%u", fb_tensor_limit(scratch));
            symbol = fb_intern(scratch, unique);
            if (symbol.id) made = fb_graph_add_tensor(scratch, symbol, (fb_tensor){0});
            if (!made.id) {
                fb_fail_memory(&error);
                break;
            }
            fb_tensor_row *row = fb_tensor_row_at(scratch, made);
            row->shape = fb_make_shape(scratch, type.sizes, (size_t)type.rank);
            row->dtype = (uint8_t)type.dtype;
            row->recipe = recipe;
            fb_error met = {0};
            fb_status status = fb_recipe_invert(scratch, made, made, &pieces, &is_computed, &met);
            if (status == FB_NO_MEMORY) fb_fail_memory(&error);
            can_be_undone &= !status && !is_computed;
        }
    }
    if (error.status == FB_NO_MEMORY || fb_graph_out_of_memory(scratch)) p->matcher->failed = true;
    else if (error.status && !p->matcher->work->stopped.status)
        REFUSE(p, application, error.code, "%s: %s", fb_layout_first(application)->name, error.message);
    else if (!error.status && (!can_be_undone || !has_everything(scratch, application, &pieces)))
        p->is_reversible[place_of(p, application->row)] = false;
    p->matcher->failed |= fb_graph_out_of_memory(scratch);
    fb_pieces_free(&pieces);
    fb_buffer_free(&name);
}

static void check_recipes(planner *p) {
    size_t count;
    fb_layout_application **applications = applications_of(p, &count);
    fb_graph *scratch = count ? fb_graph_copy(p->graph, p->matcher->work) : NULL;
    if (count && !scratch) {
        p->matcher->failed = true;
        return;
    }
    for (fb_tensor t = scratch ? fb_first_tensor(scratch) : (fb_tensor){0}; t.id; t = fb_tensor_at(scratch, t)->next)
        fb_tensor_row_at(scratch, t)->recipe = (fb_value){0};
    for (size_t i = 0; i < count && fb_matcher_goes_on(p->matcher); i++)
        if (!applications[i]->is_refused) try_recipes(p, scratch, applications[i]);
    fb_graph_free(scratch);
}

/* ---- what applications leave behind and make ---------------------------------------------------------------------------- */

static void note_taken(const planner *p, bool *taken) {
    size_t count;
    fb_layout_application **applications = applications_of(p, &count);
    memset(taken, 0, p->owned_count * sizeof *taken);
    for (size_t i = 0; i < count; i++) {
        if (applications[i]->is_refused) continue;
        FOR_EACH_TENSOR(applications[i], owned) taken[owned - p->owned] = true;
    }
}

static bool may_stay(const fb_layout_application *application, const char *name) {
    fb_layout_capture captures[CAPTURES_MAX + 1];
    fb_buffer expected = {0};
    bool may = false;
    for (size_t i = 0; i < application->row->stay_count && !may; i++) {
        if (!fb_layout_matches(&application->row->stays[i], name, captures)) continue;
        expected.size = 0;
        fb_layout_spell(&application->row->stays[i], application->captures, &expected);
        may = fb_buffer_text(&expected) && strcmp(fb_buffer_text(&expected), name) == 0;
    }
    fb_buffer_free(&expected);
    return may;
}

#define WEIGHT ".weight"

/* The length of the owning module's path; 0: the root. */
static size_t path_length(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

typedef struct made_name {
    const char *name;
    fb_layout_application *application;
} made_name;

static int by_made_name(const void *a, const void *b) {
    return strcmp(((const made_name *)a)->name, ((const made_name *)b)->name);
}

/* The first of by_name beneath the path: its name begins with the path and a dot. The others follow it. */
static size_t first_beneath(const planner *p, const char *path, size_t length) {
    size_t low = 0, high = p->owned_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const char *other = p->by_name[middle]->name;
        int order = strncmp(other, path, length);
        if (order < 0 || (!order && other[length] < '.')) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool is_beneath(const char *name, const char *path, size_t length) {
    return strncmp(name, path, length) == 0 && name[length] == '.';
}

/* True if a tensor at or beneath the module of the tensor stays where it is. */
static bool leaves_something(planner *p, fb_layout_application *application, const char *name, const size_t *next_left) {
    size_t length = path_length(name);
    if (!length) length = strlen(name); /* the root's other tensors are others' business */
    for (size_t i = next_left[first_beneath(p, name, length)];
         i < p->owned_count && is_beneath(p->by_name[i]->name, name, length); i = next_left[i + 1]) {
        if (!fb_matcher_goes_on(p->matcher)) return false;
        if (may_stay(application, p->by_name[i]->name)) continue;
        REFUSE(p, application, "left-behind", "%s would go without %s, which no row takes along",
               application->weights ? fb_layout_first(application)->name : name, p->by_name[i]->name);
        return true;
    }
    return false;
}

/* A weight does not go, nor change, without what belongs to it, nor that without the weight: the module's bias and scales, and
 * adapters and the state of a quantisation, which modules beneath it own. */
static bool check_left_behind(planner *p, fb_layout_application *application, const size_t *next_left) {
    for (size_t i = 0; application->weights && i < application->row->of->source_count; i++)
        if (leaves_something(p, application, application->weights[i].name, next_left)) return false;
    if (application->weights) return true;
    FOR_EACH_TENSOR(application, owned) {
        if (leaves_something(p, application, owned->name, next_left)) return false;
    }
    return true;
}

/* For every place in by_name, and the one past it: the first from there on that no application takes. */
static void note_left(const planner *p, const bool *taken, size_t *next_left) {
    next_left[p->owned_count] = p->owned_count;
    for (size_t i = p->owned_count; i-- > 0;) next_left[i] = taken[p->by_name[i] - p->owned] ? next_left[i + 1] : i;
}

/* Something else has the name, as a module or as a tensor that no application takes. */
static bool is_taken(const planner *p, const made_name *made, const bool *taken) {
    const fb_layout_owned *owned = find_owned(p, made->name, strlen(made->name));
    const fb_layout_owned *above = find_owned(p, made->name, path_length(made->name));
    return (owned && !taken[owned - p->owned]) || (!owned && fb_module_find(p->graph, made->name).id) ||
           (above && !taken[above - p->owned]);
}

/* Checks the results of one name, made[0] to made[count - 1]. */
static bool check_made(planner *p, const made_name *made, size_t count, const bool *taken) {
    const char *name = made->name;
    bool is_valid = *name && *name != '.' && name[strlen(name) - 1] != '.' && !strstr(name, ".."), is_stable = true;
    size_t makers = 0;
    for (size_t i = 0; i < count; i++) makers += !made[i].application->is_refused;
    for (size_t i = 0; i < count; i++) {
        fb_layout_application *application = made[i].application;
        if (application->is_refused || (is_valid && makers == 1 && !is_taken(p, &made[i], taken))) continue;
        is_stable = false;
        REFUSE(p, application, is_valid ? "name-taken" : "bad-name", "%s would become %s%s", fb_layout_first(application)->name,
               name, is_valid ? ", which is there already or is made twice" : ", which is not a tensor's name");
    }
    return is_stable;
}

static made_name *list_made(planner *p, size_t *made_count) {
    size_t count;
    fb_layout_application **applications = applications_of(p, &count);
    fb_buffer list = {0}, name = {0};
    for (size_t i = 0; i < count && fb_matcher_goes_on(p->matcher); i++) {
        fb_layout_application *application = applications[i];
        fb_layout_scope scope = {
            .layout = p->layout, .parameters = p->parameters, .graph = p->graph, .application = application};
        for (size_t t = 0; t < application->row->target_count && !application->is_refused; t++) {
            int64_t number = 0;
            fb_error error = {0};
            scope.variable_count = 0;
            fb_layout_count_of(&scope, &application->row->targets[t].each, &number, &error);
            for (int64_t k = 0; k < number; k++) {
                fb_layout_target_name(&scope, &application->row->targets[t], k, &name);
                made_name made = {.name = fb_arena_text(p->matcher->arena, name.data ? name.data : "", name.size),
                                  .application = application};
                list.failed |= !made.name || name.failed;
                fb_buffer_append(&list, &made, sizeof made);
            }
        }
    }
    fb_buffer_free(&name);
    *made_count = list.size / sizeof(made_name);
    p->matcher->failed |= list.failed;
    if (list.failed) {
        fb_buffer_free(&list);
        return NULL;
    }
    made_name *made = (made_name *)(void *)fb_buffer_take(&list, NULL);
    fb_sort(made, *made_count, sizeof *made, by_made_name);
    return made;
}

/* The row that would read a weight of this name, if the name says more than "weight". */
static const fb_layout_row *row_reading(const planner *p, const char *name) {
    fb_layout_capture captures[CAPTURES_MAX + 1];
    int64_t number;
    for (const fb_layout_row *row = p->layout->rows; row < p->layout->rows + p->layout->row_count; row++) {
        for (const fb_layout_source *source = row->sources; source < row->sources + row->source_count; source++) {
            const fb_layout_part *last = &source->pattern.parts[source->pattern.count - 1];
            if (!last->literal || last->length <= sizeof WEIGHT - 1 || !fb_layout_matches(&source->pattern, name, captures))
                continue;
            if (!source->each.variable || read_number(&captures[EACH], &number)) return row;
        }
    }
    return NULL;
}

/* Refuses tensors that belong to a weight that a row reads, when the weight is missing: adapters alone, or weights that are
 * quantised under another name. */
static void check_weightless(planner *p, const size_t *next_left) {
    const char *before = "";
    fb_buffer weight = {0};
    for (size_t i = next_left[0]; i < p->owned_count && fb_matcher_goes_on(p->matcher); i = next_left[i + 1]) {
        const char *name = p->by_name[i]->name;
        for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
            if (strncmp(before, name, (size_t)(dot + 1 - name)) == 0) continue; /* looked at already */
            weight.size = 0;
            fb_buffer_append(&weight, name, (size_t)(dot - name));
            fb_buffer_string(&weight, WEIGHT);
            const char *missing = fb_buffer_text(&weight);
            p->matcher->failed |= !missing;
            const fb_layout_row *row = missing && !find_owned(p, missing, strlen(missing)) ? row_reading(p, missing) : NULL;
            if (!row) continue;
            p->refused[row - p->layout->rows]++;
            refuse(p, "incomplete", "%s is there, but %s is not", name, missing);
        }
        before = name;
    }
    fb_buffer_free(&weight);
}

/* Checks names until nothing more is refused: a refused application keeps its names and leaves others without their companions.
 */
static void check_names(planner *p) {
    size_t count, made_count = 0;
    fb_layout_application **applications = applications_of(p, &count);
    bool *taken = calloc(p->owned_count + 1, sizeof *taken), is_stable = false;
    size_t *next_left = calloc(p->owned_count + 1, sizeof *next_left);
    p->matcher->failed |= !taken || !next_left;
    made_name *made = list_made(p, &made_count); /* also of refused applications, which are passed over */
    while (made && !is_stable && !p->matcher->failed && fb_matcher_goes_on(p->matcher)) {
        is_stable = true;
        note_taken(p, taken);
        note_left(p, taken, next_left);
        for (size_t i = 0; i < count && fb_matcher_goes_on(p->matcher); i++)
            if (!applications[i]->is_refused) is_stable &= check_left_behind(p, applications[i], next_left);
        for (size_t i = 0, to; i < made_count && fb_matcher_goes_on(p->matcher); i = to) {
            for (to = i + 1; to < made_count && strcmp(made[to].name, made[i].name) == 0;) to++;
            is_stable &= check_made(p, &made[i], to - i, taken);
        }
    }
    if (made && is_stable && !p->matcher->failed) check_weightless(p, next_left);
    free(made);
    free(taken);
    free(next_left);
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

/* {"rows": [{"applied": 32, "refused": 0, "reversible": true}, …], "kept": 12}: tensors that stay as they are. */
static void report(planner *p) {
    fb_buffer text = {0};
    size_t count, kept = p->owned_count;
    fb_layout_application **applications = applications_of(p, &count);
    for (size_t i = 0; i < count; i++)
        if (!applications[i]->is_refused) FOR_EACH_TENSOR(applications[i], owned) kept -= owned != NULL;
    fb_buffer_string(&text, "{\"rows\":[");
    for (size_t r = 0; r < p->layout->row_count; r++)
        fb_buffer_printf(&text, "%s{\"applied\":%zu,\"refused\":%zu,\"reversible\":%s}", r ? "," : "", p->applied[r],
                         p->refused[r], p->is_reversible[r] ? "true" : "false");
    fb_buffer_printf(&text, "],\"kept\":%zu}", kept);
    p->matcher->report->layout = text.failed ? NULL : fb_arena_text(p->matcher->arena, text.data, text.size);
    p->matcher->failed |= !p->matcher->report->layout;
    fb_buffer_free(&text);
}

static void plan(planner *p) {
    size_t count, kept = 0;
    fb_layout_application **applications = applications_of(p, &count);
    fb_layout_plan *made = allocate(p, sizeof *made);
    int64_t *parameters = allocate(p, sizeof p->parameters);
    fb_layout_application **list = allocate(p, count * sizeof(fb_layout_application *));
    if (p->matcher->failed) return;
    memcpy(parameters, p->parameters, sizeof p->parameters);
    for (size_t i = 0; i < count; i++) {
        if (applications[i]->is_refused) continue;
        p->applied[place_of(p, applications[i]->row)]++;
        list[kept++] = applications[i];
        fb_match_found(p->matcher, &(fb_node){(uint32_t)kept}, 1);
    }
    *made = (fb_layout_plan){.layout = p->layout, .parameters = parameters, .applications = list, .count = kept};
    p->matcher->plan = made;
}

enum { NAMES_SHOWN = 400 }; /* characters of names that a layout looked for */

/* A layout whose rows are all optional must fit something, too. */
static void refuse_unmatched(planner *p) {
    bool is_without_effect = true, has_needed = false;
    fb_buffer names = {0};
    for (size_t r = 0; r < p->layout->row_count; r++) {
        const fb_layout_row *row = &p->layout->rows[r];
        const char *name = row->sources[0].pattern.text;
        is_without_effect &= !p->applied[r] && !p->refused[r];
        has_needed |= !row->is_optional;
        if (names.size < NAMES_SHOWN) fb_buffer_printf(&names, "%s%s", r ? ", " : "", name);
        if (!p->applied[r] && !p->refused[r] && !row->is_optional) refuse(p, "unmatched", "no tensor is called %s", name);
    }
    if (is_without_effect && !has_needed) {
        const char *text = fb_buffer_text(&names);
        if (text) refuse(p, "unmatched", "no tensor is called %s", text);
        else p->matcher->failed = true;
    }
    fb_buffer_free(&names);
}

static void match(planner *p) {
    size_t count;
    if (!read_parameters(p)) return;
    list_owned(p);
    if (!p->matcher->failed) list_hits(p);
    list_applications(p);
    fb_layout_application **applications = applications_of(p, &count);
    for (size_t i = 0; i < count && !p->matcher->failed; i++)
        if (!applications[i]->is_refused) check_tensors(p, applications[i]);
    for (size_t i = 0; i < count && !p->matcher->failed; i++)
        if (!applications[i]->is_refused) check_claims(p, applications[i]);
    if (!p->matcher->failed) check_recipes(p);
    if (!p->matcher->failed) check_names(p);
    if (p->matcher->failed) return;
    plan(p);
    refuse_unmatched(p);
    report(p);
}

void fb_layout_match_graph(fb_matcher *matcher) {
    const fb_layout *layout = matcher->report->pass->data;
    planner p = {.matcher = matcher, .graph = matcher->graph, .layout = layout};
    p.is_reversible = allocate(&p, layout->row_count * sizeof *p.is_reversible);
    p.applied = allocate(&p, layout->row_count * sizeof *p.applied);
    p.refused = allocate(&p, layout->row_count * sizeof *p.refused);
    if (matcher->failed) return;
    memset(p.is_reversible, 1, layout->row_count * sizeof *p.is_reversible);
    if (fb_node_count(matcher->graph) > 1)
        refuse(&p, "not-a-checkpoint",
               "a layout rearranges a checkpoint, and this graph computes: make one of its weights with POST /v1/checkpoints");
    else match(&p);
    fb_buffer_free(&p.hits);
    fb_buffer_free(&p.applications);
}
