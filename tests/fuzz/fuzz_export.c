/* libFuzzer: whatever a graph has become since it was read from an archive, the writer of archives gives an archive that is
 * read again, with right CRCs, or it refuses with a reason. The input is a document; as many spaces before it as the number of
 * the archive that it is said to come from. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/archive/archive.h"

#define BLOB "sha256:00000000000000000000000000000000000000000000000000000000000000aa"

static const char *const names[] = {"conv",        "conv-core", "constants", "empty",        "half",
                                    "kinds",       "mlp",       "mutated",   "mutated-core", "nested",
                                    "nested-core", "shared",    "sizes",     "tied",         "writes-input"};
#define COUNT (sizeof names / sizeof *names)

static struct {
    char *bytes;
    size_t size;
    fb_archive archive;
} archives[COUNT];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    for (size_t i = 0; i < COUNT; i++) {
        char path[100];
        snprintf(path, sizeof path, "tests/fixtures/archives/%s.pt2", names[i]);
        FILE *file = fopen(path, "rb");
        require(file && fseek(file, 0, SEEK_END) == 0);
        archives[i].size = (size_t)ftell(file);
        archives[i].bytes = malloc(archives[i].size);
        rewind(file);
        require(archives[i].bytes && fread(archives[i].bytes, 1, archives[i].size, file) == archives[i].size);
        fclose(file);
        fb_error error = {0};
        require(fb_archive_open(archives[i].bytes, archives[i].size, NULL, &(fb_work){0}, &archives[i].archive, &error) ==
                FB_OK);
    }
    return 0;
}

/* New weights are made of bytes of the old archive, whichever blob they name. */
static fb_status open_blob(void *context, const char *blob, fb_blob_bytes *out, fb_error *error) {
    (void)blob, (void)error;
    *out = (fb_blob_bytes){.bytes = (const unsigned char *)archives[*(size_t *)context].bytes,
                           .size = archives[*(size_t *)context].size};
    return FB_OK;
}

static void close_blob(void *context, fb_blob_bytes *bytes) {
    (void)context, (void)bytes;
}

static void check_file(fb_archive_file *file) {
    uint64_t size = fb_archive_file_size(file);
    fb_error error = {0};
    fb_work work = {0};
    fb_archive archive;
    fb_buffer text = {0};
    if (size > (1U << 24)) return;
    unsigned char *bytes = malloc(size);
    require(bytes);
    fb_status status = fb_archive_file_read(file, 0, bytes, size, &error);
    require(!status || error.message[0]);
    if (!status) {
        require(fb_archive_open(bytes, size, NULL, &(fb_work){0}, &archive, &error) == FB_OK);
        require(fb_archive_check(&archive, &work, &error) == FB_OK);
        require(fb_archive_document(&archive, archive.models[0], BLOB, &work, &text, &error) == FB_OK);
        fb_graph *graph = fuzz_read(text.data, text.size);
        require(graph);
        fb_graph_free(graph);
        fb_archive_close(&archive);
    }
    fb_buffer_free(&text);
    free(bytes);
}

static void check(fb_graph *graph, size_t which) {
    fb_blobs blobs = {.context = &which, .open = open_blob, .close = close_blob};
    fb_archive_file *file = NULL;
    fb_error error = {0};
    fb_work work = {0};
    const fb_archive *archive = &archives[which].archive;
    fb_status status = fb_archive_file_new(archive, archive->models[0], BLOB, graph, NULL, &blobs, &work, &file, &error);
    require(!status || (error.message[0] && error.code[0]));
    if (status) return;
    check_file(file);
    fb_archive_file_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t which = 0;
    while (which < size && data[which] == ' ') which++;
    fb_graph *graph = fuzz_read((const char *)data, size);
    if (graph) check(graph, which % COUNT);
    fb_graph_free(graph);
    return 0;
}
