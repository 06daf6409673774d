/* Metadata of new nodes: where in the model they are, and what they were made of, as PyTorch's own passes say it. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/rewrite.h"
#include "core/base/map.h"
#include "core/json/json.h"
#include "core/operators/spelling.h"

#define STACK "nn_module_stack"
#define SOURCES "from_node" /* JSON in a string; PyTorch reads it since 2.13, and 2.9 passes over it */

/* ---- one new node -------------------------------------------------------------------------------------------------------- */

/* The archive's metadata of a node of its program; NULL: none. */
static const json_t *metadata_of(const pt_scope *s, fb_node node) {
    const json_t *index = json_object_get(s->rows, fb_node_name(s->r->graph_before, node));
    if (!index) return NULL;
    const pt_row *row = &s->p->rows[json_integer_value(index)];
    if (row->kind == PT_ITEM) row = &s->p->rows[row->first];
    return json_object_get(s->sources[row - s->p->rows], "metadata");
}

/* "torch.ops.aten.linear.default" as PyTorch prints it: "aten.linear.default". */
static json_t *print_target(const char *target) {
    const char *const prefixes[] = {FB_HIGHER_ORDER, FB_REGISTERED};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (fb_is_spelled(target, prefixes[i])) return json_string(target + strlen(prefixes[i]));
    }
    return json_string(target);
}

/* A number for the archive's graph: PyTorch's tools group nodes by it. */
static json_int_t number_graph(const pt_scope *s) {
    char digits[13] = "";
    const char *colon = strchr(s->r->m->blob, ':');
    strncat(digits, colon ? colon + 1 : "", sizeof digits - 1);
    uint64_t number = strtoull(digits, NULL, 16);
    return (json_int_t)(*s->p->path ? (number ^ fb_hash_text(s->p->path, 0)) & INT64_MAX : number);
}

/* The sources of the ancestor itself. */
static json_t *sources_of(const pt_scope *s, fb_node ancestor) {
    const char *text = pt_text_of(metadata_of(s, ancestor), SOURCES);
    json_error_t failure;
    json_t *made = *text ? fb_load_json_bytes(text, strlen(text), 0, &failure) : NULL;
    if (json_is_array(made)) return made;
    json_decref(made);
    return json_array();
}

static json_t *make_source(const pt_scope *s, fb_node ancestor, const char *pass) {
    const fb_graph *before = s->r->graph_before;
    const char *name = fb_node_name(before, ancestor), *known = json_string_value(json_object_get(s->names, name));
    return json_pack("{s:s,s:o,s:I,s:s,s:s,s:o}", "name", known ? known : name, "target",
                     print_target(fb_node_target(before, ancestor)), "graph_id", number_graph(s), "pass_name", pass, "action",
                     s->ancestry.is_gone[ancestor.id] ? "replace" : "create", SOURCES, sources_of(s, ancestor));
}

/* Keeps the first FB_ANCESTORS_MAX, by levels: with all of them, what is optimised again and again would have exponentially
 * many. */
static void keep_nearest(json_t *sources) {
    json_t *found[FB_ANCESTORS_MAX], *siblings = sources;
    for (size_t count = 0, next = 0;; siblings = json_object_get(found[next++], SOURCES)) {
        while (json_array_size(siblings) > FB_ANCESTORS_MAX - count) json_array_remove(siblings, json_array_size(siblings) - 1);
        for (size_t i = 0; i < json_array_size(siblings); i++) found[count++] = json_array_get(siblings, i);
        if (next == count) return;
    }
}

/* Without a run that says which pass it was, it was foldback's. */
static bool put_sources(const pt_scope *s, const char *node, const fb_ancestors *ancestors, json_t *metadata) {
    const json_t *maker = s == &s->r->main ? json_object_get(s->r->makers, node) : NULL;
    const char *pass = maker ? json_string_value(maker) : "foldback";
    json_t *sources = json_array();
    bool ok = sources != NULL;
    for (uint32_t i = 0; ok && i < ancestors->count; i++)
        ok = json_array_append_new(sources, make_source(s, ancestors->nodes[i], pass)) == 0;
    if (ok) keep_nearest(sources);
    char *text = ok ? fb_dump_json(sources, JSON_ENSURE_ASCII) : NULL;
    json_decref(sources);
    ok = text && pt_set(metadata, SOURCES, json_string(text));
    free(text);
    return ok;
}

/* A text that all ancestors have, if all have the same; inputs and weights have none. */
static bool put_agreed(const pt_scope *s, const fb_ancestors *ancestors, json_t *metadata, const char *key) {
    const json_t *agreed = NULL;
    for (uint32_t i = 0; i < ancestors->count; i++) {
        const json_t *said = metadata_of(s, ancestors->nodes[i]), *text = json_object_get(said, key);
        if (!said) continue;
        if (!text || (agreed && !json_equal(agreed, text))) return true;
        agreed = text;
    }
    return !agreed || pt_set(metadata, key, json_copy((json_t *)(uintptr_t)agreed));
}

/* ---- the modules that nodes are in: "L__self__,,net.Outer;L__self__fc,fc,torch.nn.modules.linear.Linear" ----------------- */

/* PyTorch's word for a node that is in none, such as one of a size. */
#define NO_STACK "_empty_nn_module_stack_from_metadata_hook"

static const char *stack_in(const json_t *metadata) {
    const char *text = pt_text_of(metadata, STACK);
    return fb_is_spelled(text, NO_STACK) ? "" : text;
}

static const char *stack_of(const json_t *node) {
    return stack_in(json_object_get(node, "metadata"));
}

static bool ends_at(const char *stack, size_t length) {
    return !stack[length] || stack[length] == ';';
}

/* The length of the modules that both are in. */
static size_t common_stack(const char *a, const char *b) {
    size_t common = 0;
    for (size_t i = 0; a[i] == b[i] || !a[i] || !b[i]; i++) {
        if (ends_at(a, i) && ends_at(b, i)) common = i;
        if (!a[i] || !b[i]) break;
    }
    return common;
}

/* The modules that all ancestors were in. */
static size_t stack_of_ancestors(const pt_scope *s, const fb_ancestors *ancestors, const char **stack) {
    size_t length = 0;
    *stack = NULL;
    for (uint32_t i = 0; i < ancestors->count; i++) {
        const json_t *metadata = metadata_of(s, ancestors->nodes[i]);
        const char *other = stack_in(metadata);
        if (!*other) continue;
        size_t common = *stack ? common_stack(*stack, other) : strlen(other);
        if (!*stack || common < length) length = common;
        if (!*stack) *stack = other;
    }
    return length;
}

/* Writes down each module of a stack. */
static bool note_modules(pt_scope *s, json_t *modules, const char *stack, size_t length) {
    for (size_t i = 1; i <= length; i++) {
        if (i < length && stack[i] != ';') continue;
        const char *module = fb_arena_text(&s->r->m->arena, stack, i);
        if (!module || json_object_set_new(modules, module, json_true()) != 0) return false;
    }
    return true;
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

typedef struct placing {
    pt_scope *s;
    json_t *modules;                    /* that an old node is in, or a new one has been in, each as its whole stack */
    const char *before, *const *behind; /* the stacks of the old nodes around */
    const char *previous;               /* the stack of the node before, old or new */
} placing;

/* How much of this stack, behind the first `from` characters, a new node may have: modules that no old node is in, and that no
 * new one has left. A module that is entered again would be a second call of it for torch.export.unflatten. */
static size_t enterable(const placing *p, const char *stack, size_t from, size_t length) {
    size_t kept = from;
    for (size_t i = from + 1; i <= length; i++) {
        if (i < length && stack[i] != ';') continue;
        const char *module = fb_arena_text(&p->s->r->m->arena, stack, i);
        bool is_open = strncmp(p->previous, stack, i) == 0 && ends_at(p->previous, i);
        if (!module || (json_object_get(p->modules, module) && !is_open)) break;
        kept = i;
    }
    return kept;
}

/* A new node is in the modules that the old nodes around it are in, and deeper where its ancestors were. */
static bool place(placing *p, const fb_ancestors *ancestors, size_t i, json_t *metadata) {
    const char *one = *p->before ? p->before : p->behind[i], *other = *p->behind[i] ? p->behind[i] : p->before, *deeper;
    size_t length = common_stack(one, other), most = stack_of_ancestors(p->s, ancestors, &deeper);
    if (deeper && most > length && strncmp(one, deeper, length) == 0 && (!length || ends_at(deeper, length))) {
        one = deeper;
        length = enterable(p, one, length, most);
    }
    if (!length) return true;
    bool ok = note_modules(p->s, p->modules, one, length) && pt_set(metadata, STACK, json_stringn(one, length));
    p->previous = pt_text_of(metadata, STACK);
    return ok;
}

/* The program may return a copy that the graph itself does not have: it is made of what it copies. */
static fb_ancestors ancestors_of(const pt_scope *s, const json_t *node, fb_node *copied) {
    fb_node found = fb_node_find(s->r->graph, s->program, pt_text_of(node, "name"));
    if (found.id) return s->ancestry.of[found.id];
    const char *of = pt_text_of(json_array_get(json_object_get(node, "args"), 0), "$node");
    found = fb_node_find(s->r->graph, s->program, of);
    *copied = fb_node_find(s->r->graph_before, s->program_before, of);
    if (found.id && s->ancestry.is_new[found.id]) return s->ancestry.of[found.id];
    return (fb_ancestors){.nodes = copied, .count = copied->id != 0};
}

static bool describe(placing *p, const json_t *node, size_t i, json_t *metadata) {
    fb_node copied = {0};
    fb_ancestors ancestors = ancestors_of(p->s, node, &copied);
    return place(p, &ancestors, i, metadata) && put_agreed(p->s, &ancestors, metadata, "stack_trace") &&
           put_agreed(p->s, &ancestors, metadata, "torch_fn") &&
           put_sources(p->s, pt_text_of(node, "name"), &ancestors, metadata);
}

bool pt_describe_new_nodes(pt_scope *s, const json_t *nodes) {
    size_t count = json_array_size(nodes);
    const char **behind = calloc(count + 1, sizeof *behind);
    placing p = {.s = s, .modules = json_object(), .before = "", .behind = behind, .previous = ""};
    bool ok = behind && p.modules;
    for (size_t i = count; ok && i-- > 0;) {
        const char *own = stack_of(json_array_get(nodes, i));
        behind[i] = *own ? own : i + 1 < count ? behind[i + 1] : "";
        ok = note_modules(s, p.modules, own, strlen(own));
    }
    for (size_t i = 0; ok && i < count; i++) {
        const json_t *made = json_array_get(nodes, i), *node = json_object_get(s->inserted, pt_text_of(made, "name"));
        json_t *metadata = json_object_get(made, "metadata");
        const char *own = stack_of(made);
        if (*own) p.before = p.previous = own;
        if (node && !json_object_size(metadata)) ok = fb_work_goes_on(s->r->m->work, 256) && describe(&p, node, i, metadata);
    }
    json_decref(p.modules);
    free(behind);
    return ok;
}
