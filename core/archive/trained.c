/* An archive that foldback wrote, trained and saved again by PyTorch: the same program, whose nodes may have other names and
 * another order of weights, and other bytes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/archive.h"
#include "core/archive/rewrite.h"
#include "core/base/buffer.h"
#include "core/graph/write.h"
#include "core/json/json.h"

static json_t *load(const fb_graph *graph) {
    fb_buffer text = {0};
    json_error_t failure;
    fb_document_write(graph, &text);
    json_t *made = text.failed ? NULL : fb_load_json_bytes(text.data, text.size, 0, &failure);
    fb_buffer_free(&text);
    return made;
}

static fb_status another(fb_error *error, const char *what, const char *name) {
    return fb_fail(error, FB_CONFLICT, "another-program", "", "%s%s", what, name);
}

/* A graph that a client edited is of the archive that it was read from at first, and keeps its names. This is asked of every
 * graph that was changed, and so before trees are made. */
static fb_status compare_origins(const fb_graph *written, const fb_graph *trained, fb_error *error) {
    const char *one = pt_origin_text(written), *other = pt_origin_text(trained);
    bool is_own = other && (!one || strcmp(one, other) != 0);
    return is_own ? FB_OK : another(error, "it was not read from an archive of its own", "");
}

/* The first call that only one of them has, or that reads something else. */
static fb_status compare_programs(const json_t *written, const json_t *trained, fb_error *error) {
    json_t *one = pt_meaning_of(written, false), *other = pt_meaning_of(trained, false);
    size_t i = 0, count = json_array_size(one), found = json_array_size(other);
    fb_status status = one && other ? FB_OK : fb_fail_memory(error);
    while (!status && i < count && i < found && json_equal(json_array_get(one, i), json_array_get(other, i))) i++;
    if (!status && (i < count || i < found)) {
        const char *name = json_string_value(json_array_get(json_array_get(i < found ? other : one, i), 1));
        status = another(error, "its program is another one, from this call on: ", name ? name : "?");
    }
    json_decref(one);
    json_decref(other);
    return status;
}

/* Every weight is in both, and as large. */
static fb_status compare_weights(const json_t *written, const json_t *trained, fb_error *error) {
    json_t *one = pt_owners_of(written), *other = pt_owners_of(trained), *owned;
    const char *owner;
    fb_status status = one && other ? FB_OK : fb_fail_memory(error);
    json_object_foreach(one, owner, owned) {
        const json_t *row = json_array_get(owned, 0), *now = json_array_get(json_object_get(other, owner), 0);
        bool is_alike = json_equal(json_object_get(row, "shape"), json_object_get(now, "shape")) &&
                        json_equal(json_object_get(row, "dtype"), json_object_get(now, "dtype"));
        if (!status && !now) status = another(error, "it lacks the weight ", owner);
        else if (!status && !is_alike) status = another(error, "this weight has another shape or dtype: ", owner);
    }
    json_object_foreach(other, owner, owned) {
        if (!status && !json_object_get(one, owner)) status = another(error, "it also has the weight ", owner);
    }
    json_decref(one);
    json_decref(other);
    return status;
}

fb_status fb_archive_trained_document(const fb_graph *written, const fb_graph *trained, fb_buffer *out, fb_error *error) {
    fb_status status = compare_origins(written, trained, error);
    if (status) return status;
    json_t *made = load(written), *now = load(trained);
    if (!made || !now) status = fb_fail_memory(error);
    if (!status) status = compare_programs(made, now, error);
    if (!status) status = compare_weights(made, now, error);
    static const char *const taken[] = {"modules", "tensors"};
    for (int i = 0; i < 2 && !status; i++) {
        if (json_object_set(made, taken[i], json_object_get(now, taken[i]))) status = fb_fail_memory(error);
    }
    char *text = status ? NULL : fb_dump_json(made, 0);
    if (text) fb_buffer_string(out, text);
    if (!status && (!text || out->failed)) status = fb_fail_memory(error);
    free(text);
    json_decref(made);
    json_decref(now);
    return status;
}
