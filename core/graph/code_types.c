/* Annotations in generated code, and the global names that they share with functions.
 *
 * A document has a type as torch.fx printed it: dotted names are torch's own, every other word is Python's or the global name
 * that was made for a class (typing_List, my_module_Cache). Such a name comes from the same namespace as the nodes' and is made
 * anew here, so that no node gets it. A class that is also called, or whose members are arguments, has one name for both. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/code_writer.h"
#include "core/graph/python.h"

static fb_code_class *find(const fb_code_writer *writer, const char *word, size_t length, uint64_t hash) {
    uint32_t cursor = 0, id;
    while ((id = fb_map_next(&writer->class_index, hash, &cursor)) != 0) {
        fb_code_class *found = fb_table_at(&writer->classes, id);
        if (found->length == length && memcmp(found->word, word, length) == 0) return found;
    }
    return NULL;
}

const char *fb_code_class_name(fb_code_writer *writer, const char *word, size_t length, const char *hint, bool is_called) {
    uint64_t hash = fb_hash(word, length, (uintptr_t)writer->names);
    fb_code_class *known = find(writer, word, length, hash);
    if (known && !(is_called && known->is_called)) {
        known->is_called |= is_called;
        return known->name;
    }
    const char *copy = fb_arena_text(&writer->texts, word, length);
    const char *name = copy ? fb_namespace_create(writer->names, hint ? hint : copy) : NULL;
    if (name && known) return name; /* another one that only looks the same without its dots */
    uint32_t id = name ? fb_table_add(&writer->classes) : 0;
    if (!id || !fb_map_add(&writer->class_index, hash, id)) return NULL;
    *(fb_code_class *)fb_table_at(&writer->classes, id) = (fb_code_class){copy, length, name, is_called};
    return name;
}

static void write_word(fb_code_writer *writer, const char *word, size_t length, fb_buffer *out) {
    bool is_class = fb_python_is_identifier(word, length) && fb_python_word(word, length) == FB_WORD_FREE;
    const char *name = is_class ? fb_code_class_name(writer, word, length, NULL, false) : NULL;
    if (is_class && !name) writer->failed = true;
    if (name) fb_buffer_string(out, name);
    else fb_buffer_append(out, word, length);
}

static void write(fb_code_writer *writer, fb_symbol type, fb_buffer *out) {
    const char *text = fb_text(writer->graph, type);
    size_t length = fb_text_length(writer->graph, type);
    if (!fb_code_is_plain(text, length, ".[]|, ")) {
        fb_repr_string(out, text, length); /* Python takes a string as an annotation */
        return;
    }
    for (size_t at = 0, size; at < length; at += size + 1) {
        for (size = 0; at + size < length && !strchr(" ,|[]", text[at + size]);) size++;
        write_word(writer, text + at, size, out);
        if (at + size < length) fb_buffer_char(out, text[at + size]);
    }
}

const char *fb_code_type(fb_code_writer *writer, fb_symbol type) {
    const char **place = &writer->types[type.id];
    if (!type.id) return NULL;
    if (*place) return *place;
    fb_buffer text = {0};
    write(writer, type, &text);
    const char *written = fb_buffer_text(&text);
    *place = written ? fb_arena_text(&writer->texts, written, text.size) : NULL;
    fb_buffer_free(&text);
    if (!*place) writer->failed = true;
    return *place;
}
