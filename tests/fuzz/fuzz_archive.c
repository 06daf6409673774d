/* libFuzzer: whatever bytes come, the reader of archives answers; and what it makes of an archive is a document, or is refused
 * by the reader of documents with a reason. The input is an archive; and it is the program of one, models/model.json, beside
 * the configs of a small one. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/archive/archive.h"

static void check_archive(const uint8_t *bytes, size_t size) {
    fb_archive archive;
    fb_error error = {0};
    fb_work work = {0};
    fb_buffer text = {0};
    fb_status status = fb_archive_open(bytes, size, NULL, &(fb_work){0}, &archive, &error);
    if (!status) fb_archive_check(&archive, &work, &(fb_error){0});
    const char *model = archive.model_count ? archive.models[0] : NULL;
    if (!status)
        status = fb_archive_document(&archive, model, "sha256:0000000000000000000000000000000000000000000000000000000000000000",
                                     &work, &text, &error);
    require(!status || error.message[0]);
    if (!status) {
        fb_errors errors = {0};
        fb_graph *graph = NULL;
        status = fb_document_read(text.data, text.size, NULL, "", &graph, &errors);
        require(!status || errors.total);
        require(status != FB_SYNTAX); /* what is written is JSON */
        if (!status) fb_graph_free(graph);
        fb_errors_free(&errors);
    }
    fb_buffer_free(&text);
    fb_archive_close(&archive);
}

/* ---- an archive around a program ---------------------------------------------------------------------------------------- */

static void put(fb_buffer *out, uint64_t value, int size) {
    for (int i = 0; i < size; i++) fb_buffer_char(out, (char)(unsigned char)(i < 8 ? value >> (8 * i) : 0));
}

static uint32_t crc_of(const char *bytes, size_t size) {
    uint32_t crc = ~0U;
    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320U : 0);
    }
    return ~crc;
}

static void put_entry(fb_buffer *out, fb_buffer *directory, const char *name, const char *content, size_t size) {
    uint32_t crc = crc_of(content, size);
    for (int i = 0; i < 2; i++) {
        fb_buffer *to = i ? out : directory;
        fb_buffer_append(to, i ? "PK\3\4\24\0\0\0\0\0" : "PK\1\2\24\0\24\0\0\0\0\0", i ? 10 : 12);
        put(to, 0, 4);
        put(to, crc, 4);
        put(to, size, 4);
        put(to, size, 4);
        put(to, strlen(name), 2);
        put(to, 0, 2);
        if (!i) put(to, 0, 10);
        if (!i) put(to, out->size, 4);
        fb_buffer_string(to, name);
    }
    fb_buffer_append(out, content, size);
}

#define META                                                                                                                   \
    "\"tensor_meta\":{\"dtype\":7,\"sizes\":[{\"as_int\":2}],\"requires_grad\":false,\"device\":{\"type\":\"cpu\"},"           \
    "\"strides\":[{\"as_int\":1}],\"storage_offset\":{\"as_int\":0},\"layout\":7}"
#define CONFIG(owner) "{\"config\":{\"" owner "\":{\"path_name\":\"x\",\"is_param\":true,\"use_pickle\":false," META "}}}"

static void check_program(const uint8_t *data, size_t size) {
    static const char *const files[][2] = {
        {"a/archive_format", "pt2"},
        {"a/archive_version", "0"},
        {"a/data/sample_inputs/m.pt", ""},
        {"a/data/weights/x", "01234567"},
        {"a/data/constants/x", "01234567"},
        {"a/data/weights/m_weights_config.json", CONFIG("w")},
        {"a/data/constants/m_constants_config.json", CONFIG("c")},
    };
    fb_buffer out = {0}, directory = {0};
    size_t count = sizeof files / sizeof *files;
    for (size_t i = 0; i < count; i++) put_entry(&out, &directory, files[i][0], files[i][1], strlen(files[i][1]));
    put_entry(&out, &directory, "a/models/m.json", (const char *)data, size);
    size_t at = out.size;
    fb_buffer_append(&out, directory.data, directory.size);
    fb_buffer_append(&out, "PK\5\6\0\0\0\0", 8);
    put(&out, count + 1, 2);
    put(&out, count + 1, 2);
    put(&out, directory.size, 4);
    put(&out, at, 4);
    put(&out, 0, 2);
    require(!out.failed && !directory.failed);
    check_archive((const uint8_t *)out.data, out.size);
    fb_buffer_free(&out);
    fb_buffer_free(&directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 1 && data[0] == 'P') check_archive(data, size);
    else check_program(data, size);
    return 0;
}
