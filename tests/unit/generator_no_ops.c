/* What clean-up passes look for: calls that give what they are given, calls that are there twice, and calls that must stay. */
#include "tests/unit/generator_motifs.h"

#include <string.h>

static const char *sizes_of(generator *g, const result *x) {
    fb_buffer list = {0};
    for (int i = 0; i < x->rank; i++) fb_buffer_printf(&list, ",%lld", (long long)x->sizes[i]);
    const char *copy = text(g, "%s", list.size ? fb_buffer_text(&list) : "");
    fb_buffer_free(&list);
    return copy;
}

static result *add_dropout(generator *g, const result *x) {
    static const char *const types[] = {"torch.nn.Dropout", "torch.nn.Identity", "torch.nn.Dropout", "torch.nn.AlphaDropout"};
    const char *path = fresh_path(g, "drop"), *type = PICK(g, types);
    bool is_dropout = strstr(type, "Dropout") != NULL;
    add_module(g, path, type, is_dropout ? once_in(g, 3) ? "\"p\":0.5,\"inplace\":true" : "\"p\":0.5" : "", "", "", false, "");
    return add_call(g, path, x, *x);
}

static result *add_arithmetic(generator *g, const result *x) {
    static const char *const forms[][2] = {{"operator.mul", "%s,1"}, {"torch.mul", "%s,{\"$float\":\"1.0\"}"},
                                           {"operator.mul", "1,%s"}, {"operator.truediv", "%s,1"},
                                           {"operator.sub", "%s,0"}, {"operator.add", "%s,{\"$float\":\"-0.0\"}"},
                                           {"operator.add", "%s,0"}, {"torch.add", "%s,{\"$float\":\"0.0\"}"}};
    const char *const *form = PICK(g, forms), *hole = strstr(form[1], "%s");
    const char *args = text(g, "%.*s%s%s", (int)(hole - form[1]), form[1], node_ref(g, x), hole + 2);
    return add_node(g, "same", "call_function", form[0], args, "", *x);
}

static result *add_view_or_cast(generator *g, const result *x) {
    const char *ref = node_ref(g, x), *sizes = sizes_of(g, x);
    switch (below(g, 9)) {
    case 0: return add_node(g, "view", "call_method", "view", text(g, "%s%s", ref, sizes), "", *x);
    case 1: return add_node(g, "reshape", "call_method", "reshape", text(g, "%s%s", ref, sizes), "", *x);
    case 2: return add_node(g, "expand", "call_method", "expand", text(g, "%s%s", ref, sizes), "", *x);
    case 3: return add_node(g, "detach", "call_method", "detach", ref, "", *x);
    case 4: return add_node(g, "contiguous", "call_method", "contiguous", ref, "", *x);
    case 5: return add_node(g, "clone", "call_method", "clone", ref, "", *x);
    case 6: return add_node(g, "cat", "call_function", "torch.cat", text(g, "[%s],-1", ref), "", *x);
    case 7:
        return add_node(g, "getitem", "call_function", "operator.getitem",
                        text(g, "%s,{\"$tuple\":[{\"$slice\":[null,null,null]},{\"$ellipsis\":true}]}", ref), "", *x);
    default:
        return add_node(g, "to", "call_method", "to", text(g, "%s,{\"$dtype\":\"%s\"}", ref, fb_dtype_name(x->dtype)),
                        once_in(g, 4) ? "\"copy\":true" : "", *x);
    }
}

/* A chain of them; now and then one of its values is written, or a result of the graph. */
void add_no_op(generator *g) {
    const result *picked = once_in(g, 12) ? pick_any(g) : pick_float(g, 0);
    if (!picked || picked->sort != SORT_TENSOR || picked->rank == 0) return;
    result x = *picked;
    size_t count = 1 + below(g, 3);
    for (size_t i = 0; i < count; i++) {
        result *(*const forms[])(generator *, const result *) = {add_dropout, add_arithmetic, add_arithmetic, add_view_or_cast,
                                                                 add_view_or_cast};
        result made = *PICK(g, forms)(g, &x);
        if (once_in(g, 8)) write_into_value(g, once_in(g, 2) ? &x : &made);
        if (once_in(g, 8)) make_output(g, &made);
        if (once_in(g, 6)) add_flat_view(g, &made);
        x = made;
    }
}

/* One view after the other. */
void add_views(generator *g) {
    const result *picked = pick_float(g, 0);
    if (!picked || picked->rank < 2) return;
    result x = *picked, now = x;
    size_t count = 2 + below(g, 3);
    for (size_t i = 0; i < count; i++) {
        int64_t flat = 1;
        for (int k = 0; k < now.rank; k++) flat *= now.sizes[k];
        result next = now;
        const char *ref = node_ref(g, &now), *how = once_in(g, 3) ? "view" : "reshape";
        switch (below(g, 4)) {
        case 0: now = *add_node(g, how, "call_method", how, text(g, "%s,-1", ref), "", tensor_result(x.dtype, 1, &flat)); break;
        case 1:
            if (now.rank < 2) continue;
            next.sizes[now.rank - 2] = now.sizes[now.rank - 1];
            next.sizes[now.rank - 1] = now.sizes[now.rank - 2];
            now = *add_node(g, "transpose", "call_method", "transpose", text(g, "%s,-1,-2", ref), "", next);
            break;
        case 2: now = *add_node(g, "contiguous", "call_method", "contiguous", ref, "", now); break;
        default: now = *add_node(g, how, "call_method", how, text(g, "%s%s", ref, sizes_of(g, &x)), "", x);
        }
        if (once_in(g, 12)) write_into_value(g, once_in(g, 2) ? &x : &now);
    }
    if (once_in(g, 6)) add_flat_view(g, &now);
    if (once_in(g, 4)) make_output(g, &now);
}

/* The same call again, with or without something between. */
void add_again(generator *g) {
    static const char *const functions[] = {"torch.tanh", "torch.exp", "torch.neg", "torch.abs"};
    const result *picked = pick_float(g, 0);
    if (!picked) return;
    result x = *picked;
    const char *target = PICK(g, functions), *path = NULL;
    if (once_in(g, 4)) {
        path = fresh_path(g, "act");
        add_module(g, path, "torch.nn.ReLU", "\"inplace\":false", "", "", false, "");
    }
    size_t count = 2 + below(g, 3);
    bool is_viewed = once_in(g, 3);
    for (size_t i = 0; i < count; i++) {
        result y = path ? *add_node(g, "call", "call_module", path, node_ref(g, &x), "", x)
                        : *add_node(g, "again", "call_function", target, node_ref(g, &x), "", x);
        if (is_viewed) add_flat_view(g, &y);
        if (once_in(g, 8)) write_into_value(g, once_in(g, 2) ? &x : &y);
        if (once_in(g, 8)) make_output(g, &y);
    }
}

/* What nobody reads, and must stay all the same. */
void add_effect(generator *g) {
    const result *picked = pick_float(g, 0);
    if (!picked) return;
    result x = *picked, none = {.sort = SORT_SHAPE};
    switch (below(g, 3)) {
    case 0: add_node(g, "check", "call_function", "torch._assert", "true,\"no\"", "", none); break;
    case 1:
        for (size_t i = 0; i < 1 + below(g, 2); i++)
            add_node(g, "drop", "call_function", "torch.nn.functional.dropout", text(g, "%s,0.5,true", node_ref(g, &x)), "", x);
        break;
    default:
        add_node(g, "off", "call_function", "torch.nn.functional.dropout", text(g, "%s,0.5,false", node_ref(g, &x)), "", x);
    }
}
