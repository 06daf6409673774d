#include "core/base/file_kind.h"

#include <string.h>

#define EXPORT "export the model with the Python client: foldback.export.from_module(model, *inputs)"
#define SAVE "save the tensors with safetensors.torch.save_file"
#define TAKE_OUT "`python -m foldback convert FILE -o weights.safetensors` takes the tensors out"
#define SHOWN 512 /* bytes at the start that are looked at: of a file perhaps no more than its first page is mapped */

typedef struct kind {
    const char *start; /* NULL: another way */
    size_t size;
    const char *for_json, *for_safetensors, *for_archive, *for_onnx;
} kind;

#define TEXTS(what, for_graph, for_weights)                                                                                    \
    "this is " what ", not JSON; " for_graph, "this is " what ", not a safetensors file; " for_weights,                        \
        "this is " what ", not a .pt2 of torch.export.save; " for_graph, "this is " what ", not an ONNX model; " for_graph
#define ROW(start, what, for_graph, for_weights)                                                                               \
    { start, sizeof start - 1, TEXTS(what, for_graph, for_weights) }
#define PICKLE(start)                                                                                                          \
    ROW(start, "a Python pickle, as torch.save wrote it (.pt, .bin, .pkl)", "it holds tensors, not a graph: " EXPORT, TAKE_OUT)
#define COMPRESSED "decompress it first, or send a body with Content-Encoding: "

static const kind kinds[] = {
    PICKLE("\x80\x02"),
    PICKLE("\x80\x03"),
    PICKLE("\x80\x04"),
    PICKLE("\x80\x05"),
    ROW("GGUF", "a GGUF file", EXPORT, "write the tensors that it was made from with safetensors.torch.save_file"),
    ROW("\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes (.h5)", EXPORT, SAVE),
    ROW("\x93NUMPY", "a NumPy array", EXPORT, SAVE),
    ROW("\x1f\x8b", "compressed with gzip", COMPRESSED "gzip", "decompress it first"),
    ROW("\x28\xb5\x2f\xfd", "compressed with zstd", COMPRESSED "zstd", "decompress it first"),
    ROW("\x08\x01\x12", "a saved_model.pb of TensorFlow", "python -m tf2onnx.convert --saved-model FOLDER makes ONNX of it",
        SAVE),
};
static const kind onnx = {.for_json = "this is an ONNX model, not JSON; send it to POST /v1/graphs, or name the file .onnx for "
                                      "foldback put",
                          .for_safetensors = "this is an ONNX model, not a safetensors file; " SAVE};
static const kind tflite = {NULL, 0,
                            TEXTS("a TensorFlow Lite model", "python -m tf2onnx.convert --tflite FILE makes ONNX of it", SAVE)};
static const kind script = {NULL, 0,
                            TEXTS("a TorchScript model (torch.jit.save)",
                                  "TorchScript is not read: export the torch.nn.Module that it was made from, with the Python "
                                  "client: foldback.export.from_module(model, *inputs)",
                                  TAKE_OUT)};
static const kind saved = {NULL, 0,
                           TEXTS("a checkpoint of torch.save (.pt, .bin)", "it holds tensors, not a graph: " EXPORT, TAKE_OUT)};
static const kind exported = {
    .for_json = "this is a zip archive of torch.export.save, not JSON; name the file .pt2 for foldback "
                "put, or send it to POST /v1/graphs",
    .for_safetensors = "this is a zip archive of torch.export.save, not a safetensors file; foldback put "
                       "takes a .pt2 with its weights"};
static const kind zip = {
    NULL, 0, TEXTS("a zip archive, as torch.export.save (.pt2) and torch.save (.pt, .bin) write", EXPORT, TAKE_OUT)};

static bool has(const unsigned char *bytes, uint64_t size, const char *text) {
    return memmem(bytes, size < SHOWN ? (size_t)size : SHOWN, text, strlen(text)) != NULL;
}

/* Is the name of the first entry, behind the folder of all, this one, or in this folder? */
static bool begins_with(const unsigned char *bytes, uint64_t size, const char *entry) {
    enum { LENGTH_AT = 26, NAME_AT = 30 };
    if (size <= NAME_AT) return false;
    size_t length = (size_t)(bytes[LENGTH_AT] | bytes[LENGTH_AT + 1] << 8), known = strlen(entry);
    if (length > size - NAME_AT) return false;
    const unsigned char *name = bytes + NAME_AT, *slash = memchr(name, '/', length < SHOWN ? length : SHOWN);
    return slash && (size_t)(name + length - slash - 1) >= known && !memcmp(slash + 1, entry, known);
}

/* A file of PyTorch begins with the pickle, with a tensor's bytes, or (torch.export) with weights, models or the format; the
 * pickle of TorchScript names classes of __torch__. */
static const kind *find_in_zip(const unsigned char *bytes, uint64_t size) {
    static const char *const of_export[] = {"data/weights/", "data/constants/", "models/", "archive_format", "archive_version"};
    for (size_t i = 0; i < sizeof of_export / sizeof *of_export; i++)
        if (begins_with(bytes, size, of_export[i])) return &exported;
    if (begins_with(bytes, size, "data/") || begins_with(bytes, size, "code/") || has(bytes, size, "__torch__")) return &script;
    return begins_with(bytes, size, "data.pkl") ? &saved : &zip;
}

/* A protobuf whose first field is the version of the format (ModelProto.ir_version), and whose next one is the name of what
 * wrote it, that one's version, the graph or an import of operators. A safetensors file that begins so has a header of more
 * than 4096 bytes, and its upper bytes are 0. Version 1, which no file has, is how a saved_model.pb begins. */
bool fb_is_onnx(const void *start, uint64_t size) {
    const unsigned char *bytes = start;
    return size >= 4 && bytes[0] == 0x08 && bytes[1] > 1 && bytes[1] < 32 && bytes[2] && strchr("\x12\x1a\x3a\x42", bytes[2]) &&
           !(size >= 9 && !bytes[5] && !bytes[6] && !bytes[7] && bytes[8] == '{');
}

static const kind *find(const unsigned char *bytes, uint64_t size) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (size >= kinds[i].size && memcmp(bytes, kinds[i].start, kinds[i].size) == 0) return &kinds[i];
    if (size >= 4 && (!memcmp(bytes, "PK\x03\x04", 4) || !memcmp(bytes, "PK\x05\x06", 4))) return find_in_zip(bytes, size);
    if (size >= 8 && !memcmp(bytes + 4, "TFL3", 4)) return &tflite;
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

const char *fb_kind_instead_of_archive(const void *bytes, uint64_t size) {
    const kind *found = find(bytes, size);
    return found ? found->for_archive : NULL;
}

const char *fb_kind_instead_of_onnx(const void *bytes, uint64_t size) {
    const kind *found = is_safetensors(bytes, size) ? NULL : find(bytes, size);
    return found ? found->for_onnx : NULL;
}
