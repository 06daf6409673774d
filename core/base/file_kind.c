#include "core/base/file_kind.h"

#include <string.h>

#define EXPORT "export the model with the Python client: foldback.export.from_module(model, *inputs)"
#define SAVE "save the tensors with safetensors.torch.save_file"
#define ROW(start, what)                                                                                                       \
    { start, sizeof start - 1, "this is " what ", not JSON; " EXPORT, "this is " what ", not a safetensors file; " SAVE }

typedef struct kind {
    const char *start;
    size_t size;
    const char *for_json, *for_safetensors;
} kind;

#define ZIP "a zip archive, as torch.export.save (.pt2) and torch.save (.pt, .bin) write"
#define PICKLE "a Python pickle"
#define COMPRESSED "decompress it first, or send a body with Content-Encoding: "

static const kind kinds[] = {
    ROW("PK\x03\x04", ZIP),
    ROW("PK\x05\x06", ZIP), /* an empty one */
    ROW("\x80\x02", PICKLE),
    ROW("\x80\x03", PICKLE),
    ROW("\x80\x04", PICKLE),
    ROW("\x80\x05", PICKLE),
    ROW("GGUF", "a GGUF file"),
    ROW("\x89HDF\r\n\x1a\n", "an HDF5 file"),
    ROW("\x93NUMPY", "a NumPy array"),
    {"\x1f\x8b", 2, "this is compressed with gzip, not JSON; " COMPRESSED "gzip",
     "this is compressed with gzip, not a safetensors file; decompress it first"},
    {"\x28\xb5\x2f\xfd", 4, "this is compressed with zstd, not JSON; " COMPRESSED "zstd",
     "this is compressed with zstd, not a safetensors file; decompress it first"},
};
static const kind onnx = {
    "", 0, "this is an ONNX model, not JSON; send it to POST /v1/graphs, or name the file .onnx for foldback put",
    "this is an ONNX model, not a safetensors file; " SAVE};

/* A protobuf whose first field is the version of the format (ModelProto.ir_version), and whose next one is the name of what
 * wrote it, that one's version, the graph or an import of operators. A safetensors file that begins so has a header of more
 * than 4096 bytes, and its upper bytes are 0. */
bool fb_is_onnx(const void *start, uint64_t size) {
    const unsigned char *bytes = start;
    return size >= 4 && bytes[0] == 0x08 && bytes[1] && bytes[1] < 32 && bytes[2] && strchr("\x12\x1a\x3a\x42", bytes[2]) &&
           !(size >= 9 && !bytes[5] && !bytes[6] && !bytes[7] && bytes[8] == '{');
}

static const kind *find(const unsigned char *bytes, uint64_t size) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (size >= kinds[i].size && memcmp(bytes, kinds[i].start, kinds[i].size) == 0) return &kinds[i];
    return fb_is_onnx(bytes, size) ? &onnx : NULL;
}

/* The size of a header of 1 to 2^32 - 1 bytes, and the header, which begins with {. Of a file only the header may be mapped, so
 * that nothing behind it is read. */
static bool is_safetensors(const unsigned char *bytes, uint64_t size) {
    return size >= 9 && (bytes[0] | bytes[1] | bytes[2] | bytes[3]) && !(bytes[4] | bytes[5] | bytes[6] | bytes[7]) &&
           bytes[8] == '{';
}

const char *fb_kind_instead_of_json(const void *bytes, size_t size) {
    if (is_safetensors(bytes, size))
        return "this is a safetensors file, not JSON; send the graph's document here, and bind the file to it as weights";
    const kind *found = find(bytes, size);
    return found ? found->for_json : NULL;
}

const char *fb_kind_instead_of_safetensors(const void *bytes, uint64_t size) {
    if (is_safetensors(bytes, size)) return NULL;
    const kind *found = find(bytes, size);
    return found ? found->for_safetensors : NULL;
}
