#include "tests/unit/documents.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/document/document.h"

const char *const fixture_names[] = {"aten-bert", "aten-llama", "aten-resnet18", "aten-toy", "bert-base", "bert-tiny",
                                     "gpt2-tiny", "mobilenet",  "resnet-tiny",   "resnet50", "toy",       NULL};
const int fixture_count = sizeof fixture_names / sizeof *fixture_names - 1;

char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        abort();
    }
    fb_buffer bytes = {0};
    for (;;) {
        char *to = fb_buffer_reserve(&bytes, 65536);
        size_t count = to ? fread(to, 1, 65536, file) : 0;
        if (count == 0) break;
        bytes.size += count;
    }
    fclose(file);
    return fb_buffer_take(&bytes, size);
}

char *read_fixture(const char *name, const char *file, size_t *size) {
    char path[256];
    snprintf(path, sizeof path, "tests/fixtures/%s/%s", name, file);
    return read_file(path, size);
}

fixture_ids read_fixture_ids(const char *name) {
    fixture_ids ids;
    json_t *all = json_load_file("tests/fixtures/ids.json", 0, NULL), *of_fixture = json_object_get(all, name);
    const char *graph = json_string_value(json_object_get(of_fixture, "id")),
               *structure = json_string_value(json_object_get(of_fixture, "structure"));
    if (!graph || !structure || strlen(graph) != FB_ID_LENGTH || strlen(structure) != FB_ID_LENGTH) abort();
    strcpy(ids.graph, graph);
    strcpy(ids.structure, structure);
    json_decref(all);
    return ids;
}

char *read_fixture_code(const char *name, const char *passes) {
    char *text, *heading = NULL, *code;
    size_t size;
    text = read_fixture(name, "code.txt", &size);
    if (asprintf(&heading, passes ? FIXTURE_CODE_AFTER "%s\n" : "", passes) < 0) abort();
    code = strstr(text, heading);
    if (code) {
        code += strlen(heading);
        const char *next = strstr(code, FIXTURE_CODE_AFTER);
        code = strndup(code, next ? (size_t)(next - code) : strlen(code));
    }
    free(heading);
    free(text);
    return code;
}

char *document_of(const char *nodes, const char *modules, const char *tensors) {
    fb_buffer text = {0};
    fb_buffer_printf(&text, "{\"format\":\"foldback.graph/1\",\"nodes\":[%s],\"modules\":[%s],\"tensors\":[%s]}", nodes,
                     modules ? modules : "{\"path\":\"\",\"type\":\"torch.nn.Module\"}", tensors);
    return fb_buffer_take(&text, NULL);
}

static int compare_lines(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *errors_text(const fb_errors *errors) {
    char **lines = calloc(errors->count + 1, sizeof *lines);
    for (size_t i = 0; i < errors->count; i++) {
        const fb_error *error = &errors->items[i];
        fb_buffer line = {0};
        fb_buffer_printf(&line, "%s %s%s%s\n", error->code, error->pointer, error->node[0] ? " " : "", error->node);
        lines[i] = fb_buffer_take(&line, NULL);
    }
    fb_sort(lines, errors->count, sizeof *lines, compare_lines);
    fb_buffer text = {0};
    for (size_t i = 0; i < errors->count; i++) {
        fb_buffer_string(&text, lines[i]);
        free(lines[i]);
    }
    free(lines);
    return fb_buffer_take(&text, NULL);
}

fb_graph *graph_of(const char *text, size_t size) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    if (fb_document_read(text, size, NULL, "", &graph, &errors) != FB_OK) {
        for (size_t i = 0; i < errors.count; i++) {
            fprintf(stderr, "%s %s: %s\n", errors.items[i].code, errors.items[i].pointer, errors.items[i].message);
        }
        abort();
    }
    fb_errors_free(&errors);
    return graph;
}
