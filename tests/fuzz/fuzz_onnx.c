/* libFuzzer: whatever bytes come, the reader of ONNX answers; what it reads is written as the very bytes, and what is written
 * anew is read as the same. What passes make of it is written as a model that is right, or refused. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/base/file_kind.h"
#include "core/compose/run.h"
#include "core/onnx/onnx.h"

#define BLOB "sha256:00000000000000000000000000000000000000000000000000000000000000aa"

static bool find_file(void *context, const char *location, uint64_t *size, const char **blob) {
    (void)context;
    *blob = BLOB;
    *size = 64;
    require(location[0] && location[0] != '/');
    return location[0] != 'x';
}

#define SET_MESSAGE(type, field)                                                                                               \
    if (one->field) set_##type(one->field);
#define SET_MESSAGES(type, field)                                                                                              \
    for (size_t i = 0; i < one->field.count; i++) set_##type(&one->field.items[i]);
#define ONNX_MESSAGE(message, name, most, alternatives) static void set_##message(onnx_##message *one);
#define ONNX_FIELD(message, number, field, kind)
#define ONNX_PART(message, number, field, kind, type)
#define ONNX_END(message)
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_PART
#undef ONNX_END

/* Marks all fields as set, so that they are written anew. */
#define ONNX_MESSAGE(message, name, most, alternatives)                                                                        \
    static void set_##message(onnx_##message *one) {                                                                           \
        one->head.is_set = one->head.has;                                                                                      \
        one->head.first = NULL;
#define ONNX_PART(message, number, field, kind, type) SET_##kind(type, field)
#define ONNX_END(message) }
#include "core/onnx/onnx.def"

static bool is_same(const fb_buffer *a, const void *bytes, size_t size) {
    return !a->failed && a->size == size && (!size || memcmp(a->data, bytes, size) == 0);
}

/* ---- changed models ------------------------------------------------------------------------------------------------------ */

static fb_status open_blob(void *context, const char *blob, fb_blob_bytes *out, fb_error *error) {
    if (strcmp(blob, BLOB) != 0) return fb_fail(error, FB_NOT_FOUND, "blob-missing", NULL, "%s is not here", blob);
    *out = *(const fb_blob_bytes *)context;
    return FB_OK;
}

static void close_blob(void *context, fb_blob_bytes *bytes) {
    (void)context, (void)bytes;
}

static void check_written(onnx_written *written, const onnx_files *files, fb_work *work) {
    const onnx_limits limits = {.memory = (uint64_t)256 << 20};
    uint64_t size = onnx_written_size(written, false);
    char *bytes = malloc(size + 1);
    onnx_file file;
    fb_error error = {0};
    require(bytes && size < limits.memory);
    fb_status status = onnx_written_read(written, false, 0, bytes, size, &error);
    require(!status || (error.code[0] && error.message[0]));
    if (!status) {
        require(!onnx_open(bytes, size, &limits, work, &file, &error));
        require(!onnx_check(&file, files, work, &error));
        onnx_close(&file);
    }
    free(bytes);
}

static void check_changed(onnx_file *file, const fb_graph *graph, const onnx_files *files, fb_blob_bytes *own, fb_work *work) {
    static const char list[] =
        "[\"cleanup\",\"FoldShapes\",\"EvaluateConstants\",\"FoldConstants\",\"MergeViews\","
        "\"MergeConsecutiveCalls\",\"ChangeEinsumToMatMul\",\"ChangeMulByInverseToTrueDiv\",\"MoveTransposes\","
        "\"PackLinear\",\"InlinePrograms\",\"RaiseOpset\"]";
    const fb_blobs blobs = {.context = own, .open = open_blob, .close = close_blob};
    json_t *passes = json_loads(list, 0, NULL);
    fb_composition composition;
    fb_run run;
    fb_error error = {0};
    onnx_bundle bundle = {0};
    onnx_written *written = NULL;
    require(!fb_composition_read(passes, "", NULL, &composition, &error));
    fb_status status = fb_composition_run(&composition, graph, FB_LINT_END, NULL, &run, &error);
    require(!status || (error.code[0] && strcmp(error.code, "lint-failed") != 0));
    if (!status) {
        status = onnx_bundle_of(run.result, &bundle, &error);
        if (!status) status = onnx_written_new(file, &bundle, run.result, NULL, &blobs, work, &written, &error);
        require(!status || (error.code[0] && error.message[0]));
        if (!status) check_written(written, files, work);
        onnx_written_free(written);
        onnx_bundle_free(&bundle);
        fb_run_free(&run);
    }
    fb_composition_free(&composition);
    json_decref(passes);
}

static void check_document(onnx_file *file, const onnx_files *files, fb_blob_bytes *own, fb_work *work) {
    fb_buffer text = {0};
    fb_error error = {0};
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    fb_status status = onnx_document(file, BLOB, NULL, work, &text, &error);
    require(!status || (error.code[0] && error.message[0]));
    if (!status) {
        status = fb_document_read(text.data, text.size, NULL, "", &graph, &errors);
        require(status != FB_SYNTAX); /* what is written is JSON */
        require(!status || errors.total);
        if (!status) check_changed(file, graph, files, own, work);
        if (!status) fb_graph_free(graph);
    }
    fb_buffer_free(&text);
    fb_errors_free(&errors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onnx_files files = {.model = "m.onnx", .find = find_file};
    onnx_limits limits = {.memory = (uint64_t)256 << 20};
    onnx_file file, again;
    fb_error error = {0};
    fb_work work = {0};
    fb_buffer same = {0}, anew = {0}, twice = {0};
    fb_status status = onnx_open(data, size, &limits, &work, &file, &error);
    require(!status || (error.code[0] && error.message[0]));
    if (!status) {
        status = onnx_check(&file, &files, &work, &error);
        require(!status || (error.code[0] && error.message[0]));
        if (!status) check_document(&file, &files, &(fb_blob_bytes){data, size, NULL}, &work);
        onnx_write(ONNX_IS_model, file.model, &same);
        require(is_same(&same, data, size));
        set_model(file.model);
        onnx_write(ONNX_IS_model, file.model, &anew);
        fb_error ignored = {0};
        /* With its fields in order, a model of IR 1 may begin as a file of TensorFlow. */
        const bool is_other = !fb_is_onnx(anew.data, anew.size) && fb_kind_instead_of_onnx(anew.data, anew.size);
        require(!onnx_open(anew.size ? anew.data : "", anew.size, &limits, &work, &again, &ignored) || is_other);
        if (!is_other) set_model(again.model);
        if (!is_other) onnx_write(ONNX_IS_model, again.model, &twice);
        require(is_other || is_same(&twice, anew.data, anew.size));
        onnx_close(&again);
    }
    onnx_close(&file);
    fb_buffer_free(&same);
    fb_buffer_free(&anew);
    fb_buffer_free(&twice);
    return 0;
}
