#include "core/picture/search.h"

#include <ctype.h>
#include <string.h>

static void make_small(char *text, size_t size) {
    for (size_t i = 0; i < size; i++) text[i] = (char)tolower((unsigned char)text[i]);
}

bool fb_search_read(const char *text, fb_arena *arena, fb_search *out) {
    char *copy = fb_arena_alloc(arena, strlen(text) + 1), *rest = NULL;
    *out = (fb_search){0};
    if (!copy) return false;
    strcpy(copy, text);
    make_small(copy, strlen(copy));
    for (char *word = strtok_r(copy, " ", &rest); word && out->count < FB_SEARCH_WORDS; word = strtok_r(NULL, " ", &rest)) {
        out->sizes[out->count] = strlen(word);
        out->words[out->count++] = word;
    }
    return true;
}

static void write_line(const char *text, fb_buffer *out) {
    fb_buffer_string(out, text);
    fb_buffer_char(out, '\n'); /* no word goes across */
}

static void write_node(const fb_graph *graph, fb_node n, fb_buffer *out) {
    const fb_node_row *node = fb_node_at(graph, n);
    write_line(fb_text(graph, node->name), out);
    write_line(fb_text(graph, node->target), out);
    write_line(fb_opcode_name(node->opcode), out);
    if (node->dtype) write_line(fb_dtype_name(node->dtype), out);
    if (node->opcode == FB_CALL_MODULE && node->module.id)
        write_line(fb_text(graph, fb_module_at(graph, node->module)->type), out);
}

void fb_search_text_write(const fb_drawn_rows *rows, const fb_drawn *row, fb_buffer *out) {
    static const char *const states[] = {[FB_PICTURE_KEPT] = "",
                                         [FB_PICTURE_ADDED] = "changed\nadded",
                                         [FB_PICTURE_REMOVED] = "changed\nremoved",
                                         [FB_PICTURE_CHANGED] = "changed"};
    const fb_place *place = &rows->places[row->place];
    size_t start = out->size;
    if (row->now.id) write_node(rows->graph, row->now, out);
    if (row->was.id && (!row->now.id || row->state != FB_PICTURE_KEPT)) write_node(rows->base, row->was, out);
    fb_buffer_append(out, place->path, place->path_size);
    fb_buffer_char(out, '\n');
    if (rows->base) fb_buffer_string(out, states[row->state]);
    if (!out->failed) make_small(out->data + start, out->size - start);
}

bool fb_search_finds(const fb_search *search, const char *text, size_t size, bool is_refused) {
    for (size_t i = 0; i < search->count; i++) {
        bool is_found = memmem(text, size, search->words[i], search->sizes[i]) != NULL;
        if (!is_found && !(is_refused && strcmp(search->words[i], "refused") == 0)) return false;
    }
    return true;
}
