/* GGUF files as safetensors files, and back: what layouts and the store know. Rows of quantised tensors are bytes there (U8),
 * and move whole. The types of these, and what files say of themselves, go along as metadata. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/weights/safetensors.h"
#include "core/weights/weights_file.h"
#include "server/cli/cli.h"

#define TYPES "gguf.types"       /* of a safetensors file's metadata: JSON, quantised tensor -> ggml's type */
#define OURS "foldback.metadata" /* of a GGUF file: JSON of the members "foldback.…" of a safetensors file's metadata */
#define PIECE ((size_t)1 << 20)

/* ---- files -------------------------------------------------------------------------------------------------------------- */

static int cannot(const char *what, const char *path) {
    return fb_complain(FB_EXIT_FAILED, "cannot %s %s: %s", what, path, strerror(errno));
}

static bool is_gguf(const char *path) {
    char magic[4] = "";
    FILE *file = fopen(path, "rb");
    bool is_gguf = file && fread(magic, 1, sizeof magic, file) == sizeof magic && memcmp(magic, "GGUF", 4) == 0;
    if (file) fclose(file);
    return is_gguf;
}

static bool is_gguf_name(const char *path) {
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

/* Reads from a place of the file, all of it. */
static bool read_at(int file, void *out, size_t size, uint64_t offset) {
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(file, (char *)out + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            if (!got) errno = EIO; /* it became shorter */
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

static bool write_all(int file, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t put = write(file, (const char *)bytes + done, size - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        done += (size_t)put;
    }
    return true;
}

static bool copy_range(int from, uint64_t offset, uint64_t size, int to, char *piece) {
    while (size) {
        size_t next = size < PIECE ? (size_t)size : PIECE;
        if (!read_at(from, piece, next, offset) || !write_all(to, piece, next)) return false;
        offset += next;
        size -= next;
    }
    return true;
}

/* Reads more and more of the file, until its header is whole. */
static int read_header(int file, uint64_t size, const char *path, fb_gguf_source *out) {
    fb_error error = {0};
    for (size_t have = PIECE;; have *= 4) {
        if (have > size) have = (size_t)size;
        unsigned char *grown = realloc(out->header, have ? have : 1);
        if (!grown) return fb_cli_no_memory();
        out->header = grown;
        if (!read_at(file, grown, have, 0)) return cannot("read", path);
        error = (fb_error){0};
        if (!fb_gguf_read(grown, have, size, &out->file, &error)) return FB_EXIT_DONE;
        if (strcmp(error.code, "gguf-truncated") != 0 || have == size || have > FB_GGUF_MAX_HEADER)
            return fb_complain(FB_EXIT_FAILED, "%s: %s", path, error.message);
    }
}

static void close_source(fb_gguf_source *source) {
    fb_gguf_free(&source->file);
    free(source->header);
    *source = (fb_gguf_source){0};
}

static int open_source(const char *path, fb_gguf_source *out) {
    struct stat facts;
    *out = (fb_gguf_source){0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &facts)) return cannot("read", path);
    int result = read_header(file, (uint64_t)facts.st_size, path, out);
    close(file);
    if (result) close_source(out);
    return result;
}

/* ---- what the metadata says --------------------------------------------------------------------------------------------- */

static json_t *text_of(const fb_gguf_source *source, const char *key) {
    const char *text;
    uint64_t length;
    return fb_gguf_text(&source->file, source->header, key, &text, &length) ? json_stringn(text, (size_t)length) : NULL;
}

static json_t *config_of(const fb_gguf_source *source) {
    static const struct {
        const char *theirs, *ours;
    } members[] = {
        {"attention.head_count", "num_attention_heads"},
        {"attention.head_count_kv", "num_key_value_heads"},
        {"attention.key_length", "head_dim"},
        {"embedding_length", "hidden_size"},
        {"expert_count", "num_experts"},
        {"feed_forward_length", "intermediate_size"},
    };
    json_t *config = json_object(), *architecture = text_of(source, "general.architecture");
    for (size_t i = 0; architecture && i < sizeof members / sizeof *members; i++) {
        char key[200];
        int64_t value;
        snprintf(key, sizeof key, "%.100s.%s", json_string_value(architecture), members[i].theirs);
        if (fb_gguf_number(&source->file, source->header, key, &value))
            json_object_set_new(config, members[i].ours, json_integer(value));
    }
    if (architecture) json_object_set_new(config, FB_GGUF_ARCHITECTURE, architecture);
    return config;
}

static json_t *types_of(const fb_gguf_source *source) {
    json_t *types = json_object();
    for (size_t i = 0; i < source->file.count; i++) {
        const fb_gguf_tensor *tensor = &source->file.tensors[i];
        if (!tensor->type->dtype) json_object_set_new(types, tensor->name, json_string(tensor->type->name));
    }
    return types;
}

static json_t *metadata_of(const fb_gguf_source *source) {
    json_t *metadata = json_object(), *types = types_of(source), *ours = text_of(source, OURS);
    json_t *said = ours ? json_loads(json_string_value(ours), 0, NULL) : NULL, *value;
    const char *key;
    char *text = json_object_size(types) ? json_dumps(types, JSON_COMPACT) : NULL;
    if (text) json_object_set_new(metadata, TYPES, json_string(text));
    json_object_foreach(said, key, value) {
        if (json_is_string(value) && strncmp(key, "foldback.", 9) == 0) json_object_set(metadata, key, value);
    }
    free(text);
    json_decref(types);
    json_decref(ours);
    json_decref(said);
    return metadata;
}

/* ---- to safetensors ----------------------------------------------------------------------------------------------------- */

/* A quantised tensor is its rows' bytes. */
static void describe(const fb_gguf_tensor *tensor, int64_t shape[FB_GGUF_MAX_RANK], json_t *header, uint64_t *at) {
    json_t *sizes = json_array();
    memcpy(shape, tensor->shape, sizeof tensor->shape);
    if (!tensor->type->dtype) shape[tensor->rank - 1] = shape[tensor->rank - 1] / tensor->type->elements * tensor->type->bytes;
    for (int axis = 0; axis < tensor->rank; axis++) json_array_append_new(sizes, json_integer(shape[axis]));
    json_object_set_new(header, tensor->name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->type->dtype ? tensor->type->dtype : "U8", "shape",
                                  sizes, "data_offsets", (json_int_t)*at, (json_int_t)(*at + tensor->size)));
    *at += tensor->size;
}

/* The eight bytes and the header. */
static bool lay_out(const fb_gguf_source *source, fb_buffer *out) {
    json_t *header = json_object();
    int64_t shape[FB_GGUF_MAX_RANK];
    uint64_t at = 0;
    json_object_set_new(header, "__metadata__", metadata_of(source));
    for (size_t i = 0; i < source->file.count; i++) describe(&source->file.tensors[i], shape, header, &at);
    char *text = json_dumps(header, JSON_COMPACT);
    size_t length = text ? strlen(text) : 0, padding = (8 - length % 8) % 8;
    bool is_whole = text && json_object_size(header) == source->file.count + 1;
    for (int i = 0; i < 8; i++) fb_buffer_char(out, (char)((length + padding) >> (8 * i) & 0xff));
    if (text) fb_buffer_string(out, text);
    for (size_t i = 0; i < padding; i++) fb_buffer_char(out, ' ');
    free(text);
    json_decref(header);
    return is_whole && !out->failed;
}

static int unpack(const char *path, const fb_gguf_source *source, const char *target) {
    fb_buffer header = {0};
    char *piece = malloc(PIECE);
    int from = open(path, O_RDONLY | O_CLOEXEC), to = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int result = from < 0 ? cannot("read", path) : to < 0 ? cannot("write", target) : FB_EXIT_DONE;
    if (!result && (!piece || !lay_out(source, &header))) result = fb_cli_no_memory();
    if (!result && !write_all(to, header.data, header.size)) result = cannot("write", target);
    for (size_t i = 0; i < source->file.count && !result; i++) {
        const fb_gguf_tensor *tensor = &source->file.tensors[i];
        if (!copy_range(from, tensor->offset, tensor->size, to, piece)) result = cannot("copy", path);
    }
    if (from >= 0) close(from);
    if (to >= 0 && close(to) && !result) result = cannot("write", target);
    free(piece);
    fb_buffer_free(&header);
    return result;
}

/* ---- and back ----------------------------------------------------------------------------------------------------------- */

static int make_tensor(const fb_safetensors_entry *entry, const json_t *types, fb_gguf_tensor *out) {
    const char *quantised = json_string_value(json_object_get(types, entry->name));
    bool is_quantised = quantised && strcmp(entry->dtype_name, "U8") == 0;
    *out = (fb_gguf_tensor){.name = entry->name,
                            .rank = entry->rank,
                            .type = is_quantised ? fb_gguf_type_named(quantised) : fb_gguf_type_of_dtype(entry->dtype_name)};
    if (entry->rank < 1 || entry->rank > FB_GGUF_MAX_RANK)
        return fb_complain(FB_EXIT_FAILED, "%s has %d dimensions, and a GGUF file takes 1 to 4", entry->name, entry->rank);
    if (!out->type) return fb_complain(FB_EXIT_FAILED, "%s is %s, which GGUF does not have", entry->name, entry->dtype_name);
    for (int axis = 0; axis < entry->rank; axis++) out->shape[axis] = entry->shape[axis];
    if (!is_quantised) return FB_EXIT_DONE;
    int64_t *inner = &out->shape[entry->rank - 1];
    if (*inner % out->type->bytes)
        return fb_complain(FB_EXIT_FAILED, "%s has rows of %lld bytes, which are not whole blocks of %s: rows move whole",
                           entry->name, (long long)*inner, out->type->name);
    *inner = *inner / out->type->bytes * out->type->elements;
    return FB_EXIT_DONE;
}

/* The members "foldback.…" as JSON; NULL: none. To be freed. */
static char *say_ours(const json_t *metadata) {
    json_t *ours = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (strncmp(key, "foldback.", 9) == 0) json_object_set(ours, key, value);
    }
    char *text = json_object_size(ours) ? json_dumps(ours, JSON_COMPACT) : NULL;
    json_decref(ours);
    return text;
}

static int write_tensors(int from, int to, const fb_safetensors *file, const fb_gguf_tensor *tensors, uint64_t begin,
                         const char *target) {
    static const char zeros[PIECE];
    char *piece = malloc(PIECE);
    uint64_t at = begin;
    int result = piece ? FB_EXIT_DONE : fb_cli_no_memory();
    for (size_t i = 0; i < file->count && !result; i++) {
        while (at < tensors[i].offset && !result) {
            size_t next = tensors[i].offset - at < PIECE ? (size_t)(tensors[i].offset - at) : PIECE;
            if (!write_all(to, zeros, next)) result = cannot("write", target);
            at += next;
        }
        if (!result && !copy_range(from, file->entries[i].offset, file->entries[i].size, to, piece))
            result = cannot("write", target);
        at += file->entries[i].size;
    }
    free(piece);
    return result;
}

/* llama.cpp pads the last tensor as well. */
static uint64_t end_padding(const fb_gguf_tensor *last, uint32_t alignment) {
    uint64_t end = last ? last->offset + last->size : 0;
    return (alignment - end % alignment) % alignment;
}

static int pack(int from, const fb_safetensors *file, const fb_gguf_source *like, const json_t *types, const char *target) {
    fb_gguf_tensor *tensors = calloc(file->count + 1, sizeof *tensors);
    fb_buffer header = {0};
    fb_error error = {0};
    char *ours = say_ours(file->metadata);
    int result = tensors ? FB_EXIT_DONE : fb_cli_no_memory();
    for (size_t i = 0; i < file->count && !result; i++) result = make_tensor(&file->entries[i], types, &tensors[i]);
    if (!result && fb_gguf_lay_out(&like->file, like->header, OURS, ours, tensors, file->count, &header, &error))
        result = fb_cli_error(&error);
    int to = result ? -1 : open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (!result && to < 0) result = cannot("write", target);
    if (!result && !write_all(to, header.data, header.size)) result = cannot("write", target);
    if (!result) result = write_tensors(from, to, file, tensors, header.size, target);
    char zeros[64] = "";
    uint64_t padding = file->count ? end_padding(&tensors[file->count - 1], like->file.alignment) : 0;
    if (!result && padding <= sizeof zeros && !write_all(to, zeros, (size_t)padding)) result = cannot("write", target);
    if (to >= 0 && ((!result && fsync(to)) | close(to)) && !result) result = cannot("write", target);
    free(ours);
    free(tensors);
    fb_buffer_free(&header);
    return result;
}

/* Reads the header of a safetensors file, whose bytes are to be freed. */
static int read_safetensors(int file, const char *path, unsigned char **bytes, fb_safetensors *out) {
    struct stat facts;
    unsigned char start[8];
    fb_error error = {0};
    uint64_t size = 0;
    if (fstat(file, &facts) || !read_at(file, start, sizeof start, 0)) return cannot("read", path);
    for (int i = 0; i < 8; i++) size |= (uint64_t)start[i] << (8 * i);
    if (size > FB_SAFETENSORS_MAX_HEADER || size + 8 > (uint64_t)facts.st_size)
        return fb_complain(FB_EXIT_FAILED, "%s is not a safetensors file", path);
    *bytes = malloc((size_t)size + 8);
    if (!*bytes) return fb_cli_no_memory();
    if (!read_at(file, *bytes, (size_t)size + 8, 0)) return cannot("read", path);
    return fb_safetensors_read(*bytes, (uint64_t)facts.st_size, out, &error) ? fb_cli_error(&error) : FB_EXIT_DONE;
}

static int pack_file(const char *path, const fb_gguf_source *like, const json_t *types, const char *target) {
    fb_safetensors file = {0};
    unsigned char *bytes = NULL;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int result = from < 0 ? cannot("read", path) : read_safetensors(from, path, &bytes, &file);
    json_t *noted = result ? NULL : json_object_get(file.metadata, TYPES);
    json_t *all = json_is_string(noted) ? json_loads(json_string_value(noted), 0, NULL) : NULL;
    if (!json_is_object(all)) {
        json_decref(all);
        all = json_object();
    }
    json_object_update(all, (json_t *)(uintptr_t)types);
    if (!result) result = pack(from, &file, like, all, target);
    json_decref(all);
    if (from >= 0) close(from);
    fb_safetensors_free(&file);
    free(bytes);
    return result;
}

/* ---- GGUF files among those that a command reads, and the one that it writes -------------------------------------------- */

/* A name for a file of ours, beside the output or in the folder for temporary files; NULL: memory is out. */
static char *temporary(const fb_cli *cli, const char *of) {
    const char *output = cli->values.output, *slash = output ? strrchr(output, '/') : NULL, *name = strrchr(of, '/');
    const char *folder = getenv("TMPDIR");
    static unsigned count;
    fb_buffer path = {0};
    if (!folder || !*folder) folder = "/tmp";
    if (!output || strcmp(output, "-") == 0) fb_buffer_printf(&path, "%s/", folder);
    else if (slash) fb_buffer_append(&path, output, (size_t)(slash + 1 - output));
    fb_buffer_printf(&path, ".%s.%ld.%u.safetensors", name ? name + 1 : of, (long)getpid(), count++);
    return fb_buffer_take(&path, NULL);
}

static int take_in(fb_cli *cli, fb_blob_file *one, fb_gguf_conversion *c) {
    fb_gguf_source source;
    struct stat facts;
    int result = open_source(one->path, &source);
    if (result) return result;
    char **parts = realloc(c->parts, (c->part_count + 1) * sizeof *parts), *target = temporary(cli, one->path);
    char *path = target ? strdup(target) : NULL;
    if (parts) c->parts = parts;
    if (parts && target) c->parts[c->part_count++] = target;
    else free(target);
    result = parts && path ? unpack(one->path, &source, path) : fb_cli_no_memory();
    if (!result && stat(path, &facts)) result = cannot("read", path);
    json_t *types = types_of(&source), *config = config_of(&source);
    json_object_update(c->types, types);
    json_object_update(c->config, config);
    json_decref(types);
    json_decref(config);
    if (!result) {
        free(one->path);
        one->path = path;
        one->size = (uint64_t)facts.st_size;
        path = NULL;
    }
    free(path);
    if (!c->has_like) c->like = source;
    else close_source(&source);
    c->has_like = true;
    return result;
}

int fb_gguf_begin(fb_cli *cli, fb_blob_files *files, fb_gguf_conversion *c) {
    const char *output = cli->values.output, *named = cli->values.metadata;
    int result = FB_EXIT_DONE;
    *c = (fb_gguf_conversion){.config = json_object(), .types = json_object()};
    for (size_t i = 0; i < files->count && !result; i++)
        if (files->items[i].path && is_gguf(files->items[i].path)) result = take_in(cli, &files->items[i], c);
    if (result || !output || !is_gguf_name(output)) return result;
    if (cli->values.shard_size) return fb_complain(FB_EXIT_USAGE, "a GGUF file is not written in shards");
    if (named) {
        if (c->has_like) close_source(&c->like);
        c->has_like = false;
        result = open_source(named, &c->like);
        c->has_like = !result;
    }
    if (!result && !c->has_like)
        return fb_complain(
            FB_EXIT_USAGE,
            "%s needs metadata, which safetensors files do not have: name a GGUF file that has it, --metadata FILE", output);
    char *made = result ? NULL : temporary(cli, output);
    if (!result && !made) result = fb_cli_no_memory();
    if (result) return result;
    c->output = output;
    cli->values.output = c->made = made;
    return FB_EXIT_DONE;
}

typedef struct tracer {
    const json_t *types; /* of the files that were read */
    json_t *tensors;     /* of the graph, by name */
} tracer;

/* The type that all quantised tensors have of which this is made: false if some differ, or others are among them. */
static bool trace(const tracer *t, const json_t *recipe, const char **type, int depth) {
    const json_t *value, *tensor = json_is_string(recipe) ? json_object_get(t->tensors, json_string_value(recipe)) : NULL;
    const char *key;
    size_t i;
    bool is_sure = depth < 100;
    if (tensor && json_object_get(tensor, "recipe")) return trace(t, json_object_get(tensor, "recipe"), type, depth + 1);
    if (tensor) {
        const char *name = json_string_value(json_object_get(tensor, "key"));
        const char *found = json_string_value(json_object_get(t->types, name ? name : json_string_value(recipe)));
        is_sure = found && (!*type || strcmp(*type, found) == 0);
        *type = found;
        return is_sure;
    }
    json_array_foreach((json_t *)(uintptr_t)recipe, i, value) is_sure = is_sure && trace(t, value, type, depth + 1);
    json_object_foreach((json_t *)(uintptr_t)recipe, key, value) {
        if (strcmp(key, "op") != 0) is_sure = is_sure && trace(t, value, type, depth + 1);
    }
    return is_sure;
}

static void trace_module(const tracer *t, const json_t *module, const char *member, json_t *out) {
    const char *attribute, *path = fb_text_of(module, "path");
    const json_t *name;
    json_object_foreach(json_object_get(module, member), attribute, name) {
        const char *type = NULL;
        fb_buffer whole = {0};
        fb_buffer_printf(&whole, "%s%s%s", path, *path ? "." : "", attribute);
        const char *text = fb_buffer_text(&whole);
        if (text && json_is_string(name) && trace(t, name, &type, 0) && type) json_object_set_new(out, text, json_string(type));
        fb_buffer_free(&whole);
    }
}

/* The types of the quantised tensors of a graph, by those of the tensors that it was made of. */
static int trace_types(fb_cli *cli, const char *graph, const json_t *types, json_t *out) {
    fb_address address = {0};
    json_t *document, *item;
    size_t i;
    fb_address_path(&address, "/v1/graphs");
    fb_address_segment(&address, graph);
    int result = fb_cli_get(cli, &address, &document, NULL);
    if (result) return result;
    tracer t = {.types = types, .tensors = json_object()};
    json_array_foreach(json_object_get(document, "tensors"), i, item)
        json_object_set(t.tensors, fb_text_of(item, "name"), item);
    json_array_foreach(json_object_get(document, "modules"), i, item) {
        trace_module(&t, item, "parameters", out);
        trace_module(&t, item, "buffers", out);
    }
    json_decref(t.tensors);
    json_decref(document);
    return FB_EXIT_DONE;
}

int fb_gguf_finish(fb_cli *cli, fb_gguf_conversion *c, const char *graph) {
    json_t *types = json_object();
    int result = FB_EXIT_DONE;
    if (c->output && json_object_size(c->types)) result = trace_types(cli, graph, c->types, types);
    char *part = c->output && !result ? temporary(cli, c->output) : NULL;
    if (c->output && !result && !part) result = fb_cli_no_memory();
    if (part && !result) result = pack_file(c->made, &c->like, types, part);
    if (part && !result && rename(part, c->output)) result = cannot("write", c->output);
    if (part && result) unlink(part);
    free(part);
    json_decref(types);
    return result;
}

void fb_gguf_end(fb_cli *cli, fb_gguf_conversion *c) {
    for (size_t i = 0; i < c->part_count; i++) {
        unlink(c->parts[i]);
        free(c->parts[i]);
    }
    if (c->output) cli->values.output = c->output;
    if (c->made) unlink(c->made);
    if (c->has_like) close_source(&c->like);
    free(c->parts);
    free(c->made);
    json_decref(c->config);
    json_decref(c->types);
    *c = (fb_gguf_conversion){0};
}
