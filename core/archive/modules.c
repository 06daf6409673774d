/* The modules that own the state of a program, in the order of registration, and so the order of the document's tensors. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/grow.h"

typedef struct owners {
    pt_keys by_path; /* modules, as indexes of `modules` */
    pt_keys seen;    /* owned attributes */
    pt_module **modules;
    uint32_t count;
    size_t capacity;
    pt_owned **constants; /* in the order of their reading */
} owners;

static pt_module *add_module(pt_model *m, owners *all, pt_module *parent, const char *path, const char *key) {
    bool is_new;
    if (!FB_GROW(all->modules, all->count, all->capacity)) return NULL;
    pt_module *made = pt_alloc(m, sizeof *made);
    if (!made || !pt_keys_put(&all->by_path, path, strlen(path), all->count, &is_new)) return NULL;
    *made = (pt_module){.path = path, .key = key};
    all->modules[all->count++] = made;
    if (parent) {
        *(parent->last_child ? &parent->last_child->next : &parent->children) = made;
        parent->last_child = made;
    }
    return made;
}

/* The module of that path, with those above it. */
static pt_module *module_at(pt_model *m, owners *all, const char *path, size_t length) {
    pt_module *at = m->root;
    size_t dots = 0;
    for (size_t end = 0; end < length && at;) {
        size_t from = end ? end + 1 : 0;
        end = from + strcspn(path + from, ".");
        if (end > length || ++dots > PT_MOST_DOTS) {
            pt_unsupported(m, m->program_file.name, "the path %s is too long", path);
            return NULL;
        }
        uint32_t index;
        if (pt_keys_find(&all->by_path, path, end, &index)) {
            at = all->modules[index];
            continue;
        }
        const char *whole = fb_arena_text(&m->arena, path, end);
        at = whole ? add_module(m, all, at, whole, whole + from) : NULL;
    }
    return at;
}

static bool own(pt_model *m, owners *all, pt_row *row, uint32_t *constant_count) {
    const char *kind = row->spec->kind, *path = row->target, *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    bool is_parameter = strcmp(kind, "parameter") == 0, is_constant = strcmp(kind, "tensor_constant") == 0;
    bool is_lacking = is_constant || (!is_parameter && !row->spec->is_persistent), is_new;
    const pt_keys *config = is_lacking ? &m->constants : &m->weights;
    if (!pt_keys_find(config, path, strlen(path), &row->tensor))
        return pt_bad(m, (is_lacking ? &m->constants_file : &m->weights_file)->name, "\"%s\" is missing", path);
    if (!is_constant && m->tensors[row->tensor].is_parameter != is_parameter)
        return pt_unsupported(m, m->weights_file.name,
                              "\"%s\" is a parameter here and none in the program, or the other way round", path);
    if (!pt_keys_put(&all->seen, path, strlen(path), 1, &is_new)) return false;
    if (!is_new) return true;
    pt_module *owner = module_at(m, all, path, dot ? (size_t)(dot - path) : 0);
    pt_owned *owned = owner ? pt_alloc(m, sizeof *owned) : NULL;
    if (!owned) return false;
    *owned = (pt_owned){.key = key, .path = path, .tensor = row->tensor, .is_lacking = is_lacking};
    pt_owned **list = is_parameter ? &owner->parameters : is_constant ? &owner->constants : &owner->buffers;
    pt_owned **last = is_parameter ? &owner->last_parameter : is_constant ? &owner->last_constant : &owner->last_buffer;
    *(*last ? &(*last)->next : list) = owned;
    *last = owned;
    if (is_parameter) m->tensors[row->tensor].is_owned_as_parameter = true;
    if (is_constant) all->constants[(*constant_count)++] = owned;
    return true;
}

static void take_tensor(pt_model *m, const pt_owned *owned) {
    pt_tensor *t = &m->tensors[owned->tensor];
    if (t->name) return;
    t->name = owned->path;
    t->place = m->order_count;
    m->order[m->order_count++] = owned->tensor;
}

static void take_tensors(pt_model *m, const pt_module *module) {
    for (const pt_owned *owned = module->parameters; owned; owned = owned->next) take_tensor(m, owned);
    for (const pt_owned *owned = module->buffers; owned; owned = owned->next) take_tensor(m, owned);
    for (const pt_module *child = module->children; child; child = child->next) take_tensors(m, child);
}

bool pt_make_modules(pt_model *m) {
    const pt_program *p = m->programs[0];
    owners all = {.constants = malloc((p->count + 1) * sizeof(pt_owned *))};
    m->order = malloc((m->tensor_count + 1) * sizeof *m->order);
    m->root = pt_alloc(m, sizeof *m->root);
    bool ok = all.constants && m->order && m->root;
    if (ok) *m->root = (pt_module){.path = "", .key = ""};
    uint32_t constants = 0;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        pt_row *row = &p->rows[i];
        if (row->kind == PT_STATE) ok = own(m, &all, row, &constants);
        if (row->kind != PT_PROGRAM || row->is_dead) continue;
        pt_module *module = add_module(m, &all, m->root, row->program->path, row->target);
        ok = module != NULL;
        if (ok) module->program = row->program;
    }
    if (ok) take_tensors(m, m->root);
    for (uint32_t i = 0; i < constants && ok; i++) take_tensor(m, all.constants[i]);
    pt_keys_free(&all.by_path);
    pt_keys_free(&all.seen);
    free(all.modules);
    free(all.constants);
    return ok;
}
