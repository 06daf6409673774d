#include "tests/unit/fine_tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "tests/unit/document_rows.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/numbers.h"

static fb_dtype dtype_of(const json_t *tensor) {
    return fb_dtype_find(json_string_value(json_object_get(tensor, "dtype")));
}

static size_t count_of(const json_t *tensor) {
    size_t count = 1, i;
    const json_t *size;
    json_array_foreach(json_object_get(tensor, "shape"), i, size) count *= (size_t)json_integer_value(size);
    return count;
}

static void take_content(json_t *tensor) {
    static const char *const members[] = {"recipe", "data", "digest"};
    for (int i = 0; i < 3; i++) json_object_del(tensor, members[i]);
}

void set_data(json_t *tensor, const double *numbers, size_t count, bool has_digest) {
    fb_buffer bytes = {0}, encoded = {0};
    char digest[FB_ID_LENGTH + 1];
    encode_numbers(dtype_of(tensor), numbers, count, &bytes);
    encode_base64(bytes.data, bytes.size, &encoded);
    take_content(tensor);
    json_object_set_new(tensor, "data", json_stringn(encoded.data, encoded.size));
    if (has_digest && fb_sha256_id(bytes.data, bytes.size, digest)) json_object_set_new(tensor, "digest", json_string(digest));
    fb_buffer_free(&bytes);
    fb_buffer_free(&encoded);
}

static void set_random_digest(random_source *random, json_t *tensor) {
    char digest[80];
    int size = snprintf(digest, sizeof digest, "sha256:");
    for (int i = 0; i < 4; i++)
        size += snprintf(digest + size, sizeof digest - (size_t)size, "%016llx", (unsigned long long)random_next(random));
    take_content(tensor);
    json_object_set_new(tensor, "digest", json_string(digest));
}

/* Sixteenths, which every floating dtype holds. */
static void set_random_data(random_source *random, json_t *tensor) {
    size_t count = count_of(tensor);
    double *numbers = calloc(count + 1, sizeof *numbers);
    if (!numbers) abort();
    bool is_integer = fb_dtype_is_integer(dtype_of(tensor));
    for (size_t i = 0; i < count; i++) numbers[i] = (double)(1 + random_below(random, 24)) * (is_integer ? 1 : 0.0625);
    set_data(tensor, numbers, count, random_once_in(random, 3));
    free(numbers);
}

void give_content(random_source *random, json_t *graph) {
    size_t how = random_below(random, 4), i;
    json_t *tensor;
    json_array_foreach(json_object_get(graph, "tensors"), i, tensor) {
        size_t kind = how < 3 ? how : random_below(random, 3);
        if (json_object_get(tensor, "recipe") || kind == 0) continue;
        if (kind == 1 || !has_numbers(dtype_of(tensor))) set_random_digest(random, tensor);
        else set_random_data(random, tensor);
    }
}

/* ---- fine-tuning --------------------------------------------------------------------------------------------------------- */

static bool is_in_expression(const json_t *expression, const char *name) {
    size_t i;
    const json_t *item;
    if (json_is_string(expression)) return strcmp(json_string_value(expression), name) == 0;
    json_array_foreach(json_object_get(expression, "args"), i, item) {
        if (is_in_expression(item, name)) return true;
    }
    return false;
}

static bool is_owned(const json_t *graph, const char *name) {
    static const char *const maps[] = {"parameters", "buffers"};
    size_t i;
    const char *key;
    json_t *module, *owned;
    json_array_foreach(json_object_get(graph, "modules"), i, module) {
        for (int m = 0; m < 2; m++) {
            json_object_foreach(json_object_get(module, maps[m]), key, owned) {
                if (json_is_string(owned) && strcmp(json_string_value(owned), name) == 0) return true;
            }
        }
    }
    return false;
}

static bool is_read(const json_t *graph, const char *name) {
    size_t i;
    const json_t *tensor;
    json_array_foreach(json_object_get(graph, "tensors"), i, tensor) {
        if (is_in_expression(json_object_get(tensor, "recipe"), name)) return true;
    }
    return false;
}

void drop_unread_tensors(json_t *graph) {
    json_t *tensors = json_object_get(graph, "tensors");
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        for (size_t i = json_array_size(tensors); i-- > 0;) {
            const char *name = row_name("tensors", json_array_get(tensors, i));
            if (is_owned(graph, name) || is_read(graph, name)) continue;
            json_array_remove(tensors, i);
            is_changed = true;
        }
    }
}

/* All numbers, one, those of a row, those of the last column, or a stretch. */
static void train(random_source *random, const json_t *tensor, double *numbers, size_t count) {
    const json_t *shape = json_object_get(tensor, "shape");
    size_t rank = json_array_size(shape), start = 0, stop = count, step = 1;
    size_t last = rank ? (size_t)json_integer_value(json_array_get(shape, rank - 1)) : 1;
    if (count == 0 || last == 0) return;
    switch (random_below(random, 5)) {
    case 0: break;
    case 1:
        start = random_below(random, count);
        stop = start + 1;
        break;
    case 2:
        start = random_below(random, count / last) * last;
        stop = start + last;
        break;
    case 3:
        start = last - 1;
        step = last;
        break;
    default: start = random_below(random, count); stop = start + 1 + random_below(random, count - start);
    }
    for (size_t i = start; i < stop; i += step) numbers[i] += 0.125 * (double)(1 + random_below(random, 8));
}

/* Gives the tensor the bytes that it has, perhaps trained. */
static bool bake(const random_case *c, random_source *random, const fb_graph *before, json_t *tensor, bool is_trained) {
    size_t count;
    fb_tensor was = fb_tensor_find(before, row_name("tensors", tensor));
    double *numbers = has_numbers(dtype_of(tensor)) && was.id ? evaluate_tensor(before, c->seed, was, &count) : NULL;
    if (!numbers) return false;
    if (is_trained) train(random, tensor, numbers, count);
    set_data(tensor, numbers, count, random_once_in(random, 3));
    free(numbers);
    return true;
}

/* Twice the old recipe; or its two halves exchanged, which moves bytes. */
static bool change_recipe(random_source *random, json_t *tensor) {
    json_t *old = json_object_get(tensor, "recipe"), *made;
    long long rows = json_integer_value(json_array_get(json_object_get(tensor, "shape"), 0));
    if (!old) return false;
    if (random_once_in(random, 2) && fb_dtype_is_computed(dtype_of(tensor))) {
        made = json_pack("{s:s, s:[O, {s:s, s:[], s:[], s:i}]}", "op", "mul", "args", old, "op", "full", "args", "shape",
                         "value", 2);
    } else {
        if (rows < 2) return false;
        made = json_pack("{s:s, s:[{s:s, s:[O], s:i, s:i, s:I}, {s:s, s:[O], s:i, s:i, s:i}], s:i}", "op", "concat", "args",
                         "op", "slice", "args", old, "axis", 0, "start", 1, "stop", (json_int_t)rows, "op", "slice", "args",
                         old, "axis", 0, "start", 0, "stop", 1, "axis", 0);
    }
    if (!made) abort();
    json_object_set_new(tensor, "recipe", made);
    return true;
}

static bool overwrite(const random_case *c, random_source *random, const fb_graph *before, json_t *tensor) {
    switch (random_below(random, 8)) {
    case 0:
    case 1:
    case 2: return bake(c, random, before, tensor, true);
    case 3:
    case 4: set_random_digest(random, tensor); return true;
    case 5: take_content(tensor); return true;
    case 6: return change_recipe(random, tensor);
    default: return bake(c, random, before, tensor, false);
    }
}

bool fine_tune(const random_case *c, random_source *random, json_t *graph) {
    json_t *tensors = json_object_get(graph, "tensors"), *tensor;
    fb_graph *before = graph_of_json(graph);
    size_t changed = 0, wanted = 1 + random_below(random, 3), i;
    CK(c, before, "the graph to fine-tune is not valid");
    for (int tries = 0; json_array_size(tensors) && changed < wanted && tries < 20; tries++) {
        tensor = json_array_get(tensors, random_below(random, json_array_size(tensors)));
        bool is_made = json_object_get(tensor, "recipe");
        if (!is_owned(graph, row_name("tensors", tensor)) || (!is_made && tries < 15)) continue;
        changed += overwrite(c, random, before, tensor);
    }
    if (random_once_in(random, 3)) { /* an exporter writes bytes for everything */
        json_array_foreach(tensors, i, tensor) {
            if (json_object_get(tensor, "recipe") && is_owned(graph, row_name("tensors", tensor)))
                changed += bake(c, random, before, tensor, false);
        }
    }
    drop_unread_tensors(graph);
    fb_graph_free(before);
    return changed > 0;
}
