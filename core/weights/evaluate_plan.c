/* The plan: one tree of terms for a recipe and the recipes of the tensors that it reads.
 *
 * A tensor with a recipe is looked through: what reads it reads what it is made from. It is made once and kept instead when
 * that would be more work: because several recipes read it, because one reads it again and again (the arguments of matmul, and
 * what is broadcast), or because the tree would become too deep to be walked. So memory is bounded for big tensors, and time is
 * linear for chains and shared ones. */
#include <string.h>

#include "core/weights/dtype.h"
#include "core/weights/evaluate_internal.h"
#include "core/weights/inputs.h"
#include "core/weights/recipe.h"

#define COST_MAX ((int64_t)1 << 40)

typedef struct known_tensor {
    fb_tensor tensor;
    uint32_t readers;
    fb_term *term;   /* what makes it; NULL: not yet */
    fb_term *stands; /* it is kept */
} known_tensor;

typedef struct planner {
    fb_evaluation *e;
    fb_map index;    /* tensor -> 1 + index in `known` */
    fb_buffer known; /* known_tensor, inputs first */
    fb_dtype dtype;  /* of the tensor whose recipe is planned */
    bool is_moved;   /* that recipe only moves */
} planner;

static known_tensor *known_at(const planner *p, size_t index) {
    return (known_tensor *)(void *)p->known.data + index;
}

static void *take(planner *p, size_t size) {
    void *memory = fb_arena_alloc(&p->e->arena, size ? size : 1);
    if (!memory) fb_evaluation_no_memory(p->e);
    return memory;
}

/* ---- terms ------------------------------------------------------------------------------------------------------------- */

static fb_term *new_term(planner *p, fb_recipe_term_kind kind, int rank, const int64_t *sizes) {
    fb_term *term = take(p, sizeof *term);
    int64_t *copy = term ? take(p, (size_t)rank * sizeof *copy) : NULL;
    if (!copy) return NULL;
    if (rank) memcpy(copy, sizes, (size_t)rank * sizeof *copy);
    *term = (fb_term){.kind = kind, .rank = rank, .sizes = copy, .elements = 1, .live = 1};
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == 0) term->elements = 0;
    }
    for (int i = 0; i < rank && term->elements; i++) term->elements *= sizes[i]; /* the type's check has bounded it */
    return term;
}

static int read_shape(const planner *p, fb_value shape, int64_t sizes[FB_RECIPE_MAX_RANK]) {
    int rank = fb_shape_rank(p->e->graph, shape);
    for (int i = 0; i < rank; i++) sizes[i] = fb_shape_size(p->e->graph, shape, i);
    return rank;
}

static void adopt(fb_term *term, const fb_term *const *args, size_t count) {
    term->args = args;
    term->count = count;
    term->cost = 1;
    for (size_t i = 0; i < count; i++) {
        term->computes |= args[i]->computes;
        term->gathers |= args[i]->gathers;
        term->is_turned |= args[i]->is_turned;
        if (term->depth <= args[i]->depth) term->depth = args[i]->depth + 1;
        if (term->live < args[i]->live) term->live = args[i]->live;
        term->cost += args[i]->cost;
    }
    if (term->cost > COST_MAX) term->cost = COST_MAX;
}

static fb_term *new_rounded(planner *p, fb_dtype dtype, const fb_term *made) {
    const fb_term **args = take(p, sizeof *args);
    fb_term *term = args ? new_term(p, FB_TERM_ROUNDED, made->rank, made->sizes) : NULL;
    if (!term) return NULL;
    *args = made;
    p->e->computes = true;
    adopt(term, args, 1);
    term->dtype = dtype;
    term->live++;
    return term;
}

/* ---- operations ---------------------------------------------------------------------------------------------------------- */

static fb_term *plan_value(planner *p, fb_value expression);

static fb_term *plan_concat(planner *p, const fb_term *const *args, size_t count, int axis) {
    int64_t sizes[FB_RECIPE_MAX_RANK], *starts = take(p, (count + 1) * sizeof *starts);
    if (!starts) return NULL;
    starts[0] = 0;
    for (size_t i = 0; i < count; i++) starts[i + 1] = starts[i] + args[i]->sizes[axis];
    memcpy(sizes, args[0]->sizes, (size_t)args[0]->rank * sizeof *sizes);
    sizes[axis] = starts[count];
    fb_term *term = new_term(p, FB_TERM_OP, args[0]->rank, sizes);
    if (!term) return NULL;
    term->axis = axis;
    term->starts = starts;
    return term;
}

static fb_term *plan_slice(planner *p, fb_value expression, const fb_term *arg) {
    int64_t sizes[FB_RECIPE_MAX_RANK], start = fb_recipe_int(p->e->graph, expression, "start");
    int axis = (int)fb_recipe_int(p->e->graph, expression, "axis");
    memcpy(sizes, arg->sizes, (size_t)arg->rank * sizeof *sizes);
    sizes[axis] = fb_recipe_int(p->e->graph, expression, "stop") - start;
    fb_term *term = new_term(p, FB_TERM_OP, arg->rank, sizes);
    if (!term) return NULL;
    term->axis = axis;
    term->start = start;
    return term;
}

static fb_term *plan_permute(planner *p, fb_value expression, const fb_term *arg) {
    fb_value given = fb_recipe_value(p->e->graph, expression, "dims");
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int *dims = take(p, (size_t)arg->rank * sizeof *dims);
    if (!dims) return NULL;
    for (int i = 0; i < arg->rank; i++) {
        dims[i] = (int)fb_shape_size(p->e->graph, given, i);
        sizes[i] = arg->sizes[dims[i]];
    }
    fb_term *term = new_term(p, FB_TERM_OP, arg->rank, sizes);
    if (!term) return NULL;
    int last = arg->rank - 1;
    while (last > 0 && sizes[last] == 1) last--;
    for (int i = last < 0 ? arg->rank : dims[last] + 1; i < arg->rank; i++) term->is_turned |= arg->sizes[i] != 1;
    term->dims = dims;
    return term;
}

/* The checker has seen to it that the dtype of a movement holds the number. */
static void encode(fb_dtype dtype, int64_t integer, double number, unsigned char *out) {
    size_t size = fb_dtype_size(dtype);
    if (fb_dtype_is_floating(fb_dtype_part(dtype))) fb_dtype_encode(fb_dtype_part(dtype), number, out);
    else
        for (size_t i = 0; i < size; i++) out[i] = (unsigned char)((uint64_t)integer >> (8 * i));
}

static fb_term *plan_full(planner *p, fb_value expression) {
    const fb_graph *g = p->e->graph;
    fb_value value = fb_recipe_value(g, expression, "value");
    int64_t sizes[FB_RECIPE_MAX_RANK], integer = fb_value_kind(g, value) == FB_TRUE;
    int rank = read_shape(p, fb_recipe_value(g, expression, "shape"), sizes);
    fb_term *term = new_term(p, FB_TERM_OP, rank, sizes);
    if (!term) return NULL;
    double number = (double)integer;
    fb_value_is_int(g, value, &integer);
    fb_value_is_number(g, value, &number);
    term->number = number;
    if (!p->is_moved) return term;
    encode(p->dtype, integer, number, term->element);
    if (fb_dtype_is_computed(p->dtype)) fb_round_numbers(p->dtype, &term->number, 1); /* what reads the tensor reads it so */
    return term;
}

/* Caches expensive terms that are read more than once. */
static const fb_term *repeated(planner *p, const fb_term *arg) {
    if (!arg->computes || (!arg->gathers && arg->cost <= p->e->limits->repeated)) return arg;
    if (arg->kind != FB_TERM_ROUNDED) arg = new_rounded(p, FB_FLOAT64, arg);
    return arg ? fb_evaluation_keep(p->e, arg, arg->dtype) : NULL;
}

static fb_term *plan_binary(planner *p, const fb_term **args) {
    const fb_term *wide = args[args[1]->rank > args[0]->rank], *narrow = args[args[1]->rank <= args[0]->rank];
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int shift = wide->rank - narrow->rank;
    for (int i = 0; i < wide->rank; i++) {
        sizes[i] = i >= shift && wide->sizes[i] == 1 ? narrow->sizes[i - shift] : wide->sizes[i];
    }
    fb_term *term = new_term(p, FB_TERM_OP, wide->rank, sizes);
    if (!term) return NULL;
    for (int i = 0; i < 2; i++) {
        if (args[i]->elements < term->elements) args[i] = repeated(p, args[i]);
        if (!args[i]) return NULL;
    }
    /* The one that takes more memory is made in place of the result, and the other one beside it. */
    int more = args[0]->live > args[1]->live ? args[0]->live : args[1]->live;
    bool is_broadcast = args[0]->elements < term->elements || args[1]->elements < term->elements;
    term->live = args[0]->live == args[1]->live || is_broadcast ? more + 1 : more;
    return term;
}

/* numpy.matmul: the dimensions before the last two are broadcast. */
static fb_term *plan_matmul(planner *p, const fb_term **args) {
    int64_t sizes[FB_RECIPE_MAX_RANK];
    const fb_term *a = args[0] = repeated(p, args[0]);
    const fb_term *b = args[1] = a ? repeated(p, args[1]) : NULL;
    if (!b) return NULL;
    int a_batch = a->rank > 2 ? a->rank - 2 : 0, b_batch = b->rank > 2 ? b->rank - 2 : 0;
    int batch = a_batch > b_batch ? a_batch : b_batch, rank = batch;
    for (int i = 0; i < batch; i++) {
        int64_t of_a = i < batch - a_batch ? 1 : a->sizes[i - (batch - a_batch)];
        int64_t of_b = i < batch - b_batch ? 1 : b->sizes[i - (batch - b_batch)];
        sizes[i] = of_a == 1 ? of_b : of_a;
    }
    if (a->rank > 1) sizes[rank++] = a->sizes[a->rank - 2];
    if (b->rank > 1) sizes[rank++] = b->sizes[b->rank - 1];
    return new_term(p, FB_TERM_OP, rank, sizes);
}

static fb_term *plan_absmax(planner *p, fb_value expression, const fb_term *arg) {
    fb_value dims = fb_recipe_value(p->e->graph, expression, "dims");
    int64_t sizes[FB_RECIPE_MAX_RANK];
    memcpy(sizes, arg->sizes, (size_t)arg->rank * sizeof *sizes);
    for (int i = 0; i < fb_shape_rank(p->e->graph, dims); i++) sizes[fb_shape_size(p->e->graph, dims, i)] = 1;
    return new_term(p, FB_TERM_OP, arg->rank, sizes);
}

static fb_term *plan_index_select(planner *p, fb_value expression, const fb_term **args) {
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int axis = (int)fb_recipe_int(p->e->graph, expression, "axis");
    fb_tensor index = fb_value_tensor(p->e->graph, fb_recipe_arg(p->e->graph, expression, 1));
    if (args[1]->kind != FB_TERM_BYTES)
        args[1] = fb_evaluation_keep(p->e, args[1], (fb_dtype)fb_tensor_at(p->e->graph, index)->dtype);
    if (!args[1] || !(args[0] = repeated(p, args[0]))) return NULL;
    memcpy(sizes, args[0]->sizes, (size_t)args[0]->rank * sizeof *sizes);
    sizes[axis] = args[1]->elements;
    fb_term *term = new_term(p, FB_TERM_OP, args[0]->rank, sizes);
    if (term) term->axis = axis;
    return term;
}

static fb_term *plan_operation(planner *p, fb_value expression, fb_recipe_op op, const fb_term **args, size_t count) {
    int64_t sizes[FB_RECIPE_MAX_RANK];
    const fb_graph *g = p->e->graph;
    switch (op) {
    case FB_RECIPE_CONCAT: return plan_concat(p, args, count, (int)fb_recipe_int(g, expression, "axis"));
    case FB_RECIPE_SLICE: return plan_slice(p, expression, args[0]);
    case FB_RECIPE_RESHAPE:
        return new_term(p, FB_TERM_OP, read_shape(p, fb_recipe_value(g, expression, "shape"), sizes), sizes);
    case FB_RECIPE_PERMUTE: return plan_permute(p, expression, args[0]);
    case FB_RECIPE_FULL: return plan_full(p, expression);
    case FB_RECIPE_MATMUL: return plan_matmul(p, args);
    case FB_RECIPE_ABSMAX: return plan_absmax(p, expression, args[0]);
    case FB_RECIPE_INDEX_SELECT: return plan_index_select(p, expression, args);
    case FB_RECIPE_NEG:
    case FB_RECIPE_SQRT:
    case FB_RECIPE_EXP:
    case FB_RECIPE_SIN:
    case FB_RECIPE_COS:
    case FB_RECIPE_ROUND:
    case FB_RECIPE_RSQRT: return new_term(p, FB_TERM_OP, args[0]->rank, args[0]->sizes);
    default: return plan_binary(p, args);
    }
}

/* ---- expressions --------------------------------------------------------------------------------------------------------- */

static bool is_to_be_kept(const planner *p, const known_tensor *known) {
    const fb_term *term = known->term;
    if (term->depth > p->e->limits->depth) return true;
    return known->readers > 1 && (term->computes || term->cost > p->e->limits->cost);
}

static fb_term *plan_tensor(planner *p, fb_tensor tensor) {
    known_tensor *known = known_at(p, fb_map_get(&p->index, tensor.id) - 1);
    if (!known->term) {
        fb_evaluation_fail(p->e, FB_INVALID, "bad-recipe", "%s is computed from itself", fb_tensor_name(p->e->graph, tensor));
        return NULL;
    }
    if (!known->stands && is_to_be_kept(p, known))
        known->stands = fb_evaluation_keep(p->e, known->term, (fb_dtype)fb_tensor_at(p->e->graph, tensor)->dtype);
    else if (!known->stands) return known->term;
    return known->stands;
}

/* The expression's type has been checked; so its depth is bounded. */
static fb_term *plan_value(planner *p, fb_value expression) {
    fb_tensor tensor = fb_value_tensor(p->e->graph, expression);
    if (tensor.id) return plan_tensor(p, tensor);
    fb_recipe_op op = fb_recipe_op_of(p->e->graph, expression);
    size_t count = fb_recipe_arg_count(p->e->graph, expression);
    const fb_term **args = take(p, count * sizeof *args);
    for (size_t i = 0; i < count; i++) {
        if (!args || !(args[i] = plan_value(p, fb_recipe_arg(p->e->graph, expression, i)))) return NULL;
    }
    fb_term *term = args ? plan_operation(p, expression, op, args, count) : NULL;
    if (!term) return NULL;
    term->op = op;
    adopt(term, args, count);
    term->computes |= !fb_recipe_facts_of(op)->is_movement;
    term->gathers |= op == FB_RECIPE_MATMUL || op == FB_RECIPE_ABSMAX;
    term->live += op == FB_RECIPE_INDEX_SELECT;                                                 /* the index */
    term->live += op == FB_RECIPE_ABSMAX;                                                       /* a part of its argument */
    term->live += op == FB_RECIPE_CONCAT || op == FB_RECIPE_RESHAPE || op == FB_RECIPE_PERMUTE; /* a copy without gaps */
    return term;
}

/* A whole recipe; what computes is rounded to `dtype`. */
static fb_term *plan_recipe(planner *p, fb_value recipe, fb_dtype dtype, const fb_recipe_type *type) {
    p->dtype = dtype;
    p->is_moved = type->is_movement;
    fb_term *term = plan_value(p, recipe);
    return term && !type->is_movement ? new_rounded(p, dtype, term) : term;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

static bool check_recipe(planner *p, const char *what, fb_value recipe, fb_dtype *dtype, fb_recipe_type *type) {
    fb_evaluation *e = p->e;
    e->status = fb_recipe_type_under(e->graph, recipe, *dtype, "", type, e->error);
    if (e->status) return false;
    if (!*dtype) *dtype = type->dtype;
    if (type->is_movement ? !*dtype || (type->dtype && type->dtype != *dtype) : !fb_recipe_rounds_to(*dtype))
        fb_evaluation_fail(e, FB_INVALID, "bad-recipe", "%s cannot be %s", what,
                           *dtype ? fb_dtype_name(*dtype) : "of an unknown dtype");
    return !e->status;
}

static fb_term *plan_made(planner *p, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(p->e->graph, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    fb_recipe_type type;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    if (!check_recipe(p, fb_tensor_name(p->e->graph, tensor), row->recipe, &dtype, &type)) return NULL;
    bool is_same = fb_shape_rank(p->e->graph, row->shape) == type.rank && read_shape(p, row->shape, sizes) == type.rank;
    if (is_same && (!type.rank || memcmp(sizes, type.sizes, (size_t)type.rank * sizeof *sizes) == 0))
        return plan_recipe(p, row->recipe, dtype, &type);
    fb_evaluation_fail(p->e, FB_INVALID, "bad-recipe", "%s has another shape than its recipe",
                       fb_tensor_name(p->e->graph, tensor));
    return NULL;
}

static fb_term *plan_source(planner *p, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(p->e->graph, tensor);
    int64_t sizes[FB_RECIPE_MAX_RANK];
    if (row->dtype == FB_DTYPE_OTHER) {
        fb_evaluation_fail(p->e, FB_INVALID, "unknown-dtype", "%s is of %s, which is carried, but not known here",
                           fb_tensor_name(p->e->graph, tensor), fb_tensor_dtype_name(p->e->graph, tensor));
        return NULL;
    }
    fb_term *term = new_term(p, FB_TERM_BYTES, read_shape(p, row->shape, sizes), sizes);
    if (!term) return NULL;
    term->dtype = (fb_dtype)row->dtype;
    term->cost = 1;
    return fb_evaluation_source(p->e, tensor, term) ? term : NULL;
}

/* ---- all that is read ---------------------------------------------------------------------------------------------------- */

static void list_tensor(void *context, fb_tensor tensor) {
    planner *p = context;
    known_tensor fresh = {.tensor = tensor};
    fb_buffer_append(&p->known, &fresh, sizeof fresh);
    if (p->known.failed || !fb_map_put(&p->index, tensor.id, (uint32_t)(p->known.size / sizeof fresh)))
        fb_evaluation_no_memory(p->e);
}

static void count_reader(void *context, fb_tensor tensor) {
    planner *p = context;
    uint32_t number = fb_map_get(&p->index, tensor.id);
    if (number) known_at(p, number - 1)->readers++;
}

typedef struct visiting {
    planner *p;
    fb_inputs_walk walk;
} visiting;

static void visit_inputs(void *context, fb_tensor tensor) {
    visiting *v = context;
    fb_inputs_visit(&v->walk, tensor, list_tensor, v->p);
}

static void list_inputs(planner *p, fb_value expression) {
    fb_tensor tensor = fb_value_tensor(p->e->graph, expression);
    visiting v = {.p = p};
    if (tensor.id && !fb_tensor_at(p->e->graph, tensor)->recipe.id) {
        list_tensor(p, tensor); /* not worth a walk */
        return;
    }
    if (fb_inputs_begin(&v.walk, p->e->graph)) fb_value_visit_tensors(p->e->graph, expression, visit_inputs, &v);
    if (!fb_inputs_end(&v.walk)) fb_evaluation_no_memory(p->e);
    for (size_t i = 0; i < p->known.size / sizeof(known_tensor) && !p->e->status; i++) {
        fb_value recipe = fb_tensor_at(p->e->graph, known_at(p, i)->tensor)->recipe;
        if (recipe.id) fb_value_visit_tensors(p->e->graph, recipe, count_reader, p);
    }
    fb_value_visit_tensors(p->e->graph, expression, count_reader, p);
}

static void plan_all(planner *p, fb_value expression) {
    fb_evaluation *e = p->e;
    fb_recipe_type type;
    fb_dtype dtype = e->dtype;
    if (!check_recipe(p, "the expression", expression, &dtype, &type)) return;
    list_inputs(p, expression);
    for (size_t i = 0; i < p->known.size / sizeof(known_tensor) && !e->status; i++) {
        fb_tensor tensor = known_at(p, i)->tensor;
        fb_term *term = fb_tensor_at(e->graph, tensor)->recipe.id ? plan_made(p, tensor) : plan_source(p, tensor);
        known_at(p, i)->term = term;
    }
    if (e->status) return;
    fb_tensor whole = fb_value_tensor(e->graph, expression);
    if (whole.id) e->root = known_at(p, fb_map_get(&p->index, whole.id) - 1)->term;
    else e->root = plan_recipe(p, expression, dtype, &type);
    e->dtype = dtype;
}

void fb_evaluation_plan(fb_evaluation *e, fb_value expression) {
    planner p = {.e = e};
    plan_all(&p, expression);
    fb_map_free(&p.index);
    fb_buffer_free(&p.known);
}
