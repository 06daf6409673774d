#include "core/graph/python.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *text;
    uint8_t length;
    uint8_t kind; /* fb_word */
} word;

#define K(text)                                                                                                                \
    { text, sizeof text - 1, FB_WORD_KEYWORD }
#define B(text)                                                                                                                \
    { text, sizeof text - 1, FB_WORD_BUILTIN }
#define R(text)                                                                                                                \
    { text, sizeof text - 1, FB_WORD_REGISTERED }

/* keyword.kwlist and dir(builtins) of CPython 3.11 (as PyTorch reads them at run time) and torch.fx's own registered globals,
 * sorted by their bytes. */
/* clang-format off */
static const word words[] = {
    B("ArithmeticError"), B("AssertionError"), B("AttributeError"), B("BaseException"), B("BaseExceptionGroup"),
    B("BlockingIOError"), B("BrokenPipeError"), B("BufferError"), B("BytesWarning"), B("ChildProcessError"),
    B("ConnectionAbortedError"), B("ConnectionError"), B("ConnectionRefusedError"), B("ConnectionResetError"),
    B("DeprecationWarning"), B("EOFError"), B("Ellipsis"), B("EncodingWarning"), B("EnvironmentError"), B("Exception"),
    B("ExceptionGroup"), K("False"), B("FileExistsError"), B("FileNotFoundError"), B("FloatingPointError"), B("FutureWarning"),
    B("GeneratorExit"), B("IOError"), B("ImportError"), B("ImportWarning"), B("IndentationError"), B("IndexError"),
    B("InterruptedError"), B("IsADirectoryError"), B("KeyError"), B("KeyboardInterrupt"), B("LookupError"), B("MemoryError"),
    B("ModuleNotFoundError"), B("NameError"), K("None"), R("NoneType"), B("NotADirectoryError"), B("NotImplemented"),
    B("NotImplementedError"), B("OSError"), B("OverflowError"), B("PendingDeprecationWarning"), B("PermissionError"),
    B("ProcessLookupError"), B("RecursionError"), B("ReferenceError"), B("ResourceWarning"), B("RuntimeError"),
    B("RuntimeWarning"), B("StopAsyncIteration"), B("StopIteration"), B("SyntaxError"), B("SyntaxWarning"), B("SystemError"),
    B("SystemExit"), B("TabError"), B("TimeoutError"), K("True"), B("TypeError"), B("UnboundLocalError"),
    B("UnicodeDecodeError"), B("UnicodeEncodeError"), B("UnicodeError"), B("UnicodeTranslateError"), B("UnicodeWarning"),
    B("UserWarning"), B("ValueError"), B("Warning"), B("ZeroDivisionError"), B("__build_class__"), B("__debug__"), B("__doc__"),
    B("__import__"), B("__loader__"), B("__name__"), B("__package__"), B("__spec__"), B("abs"), B("aiter"), B("all"), K("and"),
    B("anext"), B("any"), K("as"), B("ascii"), K("assert"), K("async"), K("await"), B("bin"), B("bool"), K("break"),
    B("breakpoint"), B("bytearray"), B("bytes"), B("callable"), B("chr"), K("class"), B("classmethod"), B("compile"),
    B("complex"), K("continue"), B("copyright"), B("credits"), K("def"), K("del"), B("delattr"), R("device"), B("dict"),
    B("dir"), B("divmod"), K("elif"), K("else"), B("enumerate"), B("eval"), K("except"), B("exec"), B("exit"), B("filter"),
    K("finally"), B("float"), K("for"), B("format"), K("from"), B("frozenset"), R("fx_pytree"), B("getattr"), K("global"),
    B("globals"), B("hasattr"), B("hash"), B("help"), B("hex"), B("id"), K("if"), K("import"), K("in"), R("inf"), B("input"),
    B("int"), K("is"), B("isinstance"), B("issubclass"), B("iter"), K("lambda"), B("len"), B("license"), B("list"), B("locals"),
    B("map"), B("max"), B("memoryview"), B("min"), R("nan"), B("next"), K("nonlocal"), K("not"), B("object"), B("oct"),
    B("open"), K("or"), B("ord"), K("pass"), B("pow"), B("print"), B("property"), R("pytree"), B("quit"), K("raise"),
    B("range"), B("repr"), K("return"), B("reversed"), B("round"), B("set"), B("setattr"), B("slice"), B("sorted"),
    B("staticmethod"), B("str"), B("sum"), B("super"), R("torch"), K("try"), B("tuple"), B("type"), B("vars"), K("while"),
    K("with"), K("yield"), B("zip"),
};
/* clang-format on */

typedef struct key {
    const char *text;
    size_t length;
} key;

static int compare(const void *left, const void *right) {
    const key *a = left;
    const word *b = right;
    int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

fb_word fb_python_word(const char *text, size_t length) {
    if (length && text[length - 1] >= '0' && text[length - 1] <= '9') return FB_WORD_FREE; /* none of them ends so */
    key wanted = {text, length};
    const word *found = bsearch(&wanted, words, sizeof words / sizeof *words, sizeof *words, compare);
    return found ? (fb_word)found->kind : FB_WORD_FREE;
}

uint32_t fb_utf8_decode(const char *text, size_t length, size_t *size) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000}; /* a longer spelling than needed is not UTF-8 */
    unsigned char lead = (unsigned char)text[0];
    *size = 1;
    if (lead < 0x80) return lead;
    size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || wanted > length) return UINT32_MAX;
    uint32_t code = lead & (0xffU >> (wanted + 1));
    for (size_t i = 1; i < wanted; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80) return UINT32_MAX;
        code = code << 6 | (next & 0x3f);
    }
    if (code < smallest[wanted] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return UINT32_MAX;
    *size = wanted;
    return code;
}

static bool is_ascii_letter(uint32_t code) {
    return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
}

bool fb_python_is_identifier(const char *text, size_t length) {
    size_t at = 0; /* most are letters of ASCII, digits and bars to the end */
    while (at < length &&
           (is_ascii_letter((unsigned char)text[at]) || text[at] == '_' || (at && text[at] >= '0' && text[at] <= '9')))
        at++;
    for (size_t size; at < length; at += size) {
        uint32_t code = fb_utf8_decode(text + at, length - at, &size);
        if (is_ascii_letter(code) || code == '_') continue;
        if (at ? !fb_unicode_continues_identifier(code) : !fb_unicode_starts_identifier(code)) return false;
    }
    return length > 0;
}

bool fb_python_is_member(const char *text, size_t length) {
    for (size_t at = 0, size = 1; at < length; at += size, size = 1) {
        if ((unsigned char)text[at] >= 0x80 && !fb_unicode_is_normal(fb_utf8_decode(text + at, length - at, &size)))
            return false;
    }
    return fb_python_is_identifier(text, length) && fb_python_word(text, length) != FB_WORD_KEYWORD;
}

bool fb_python_is_dotted(const char *text, size_t length) {
    for (;;) {
        const char *dot = memchr(text, '.', length);
        size_t part = dot ? (size_t)(dot - text) : length;
        if (!fb_python_is_identifier(text, part)) return false;
        if (!dot) return true;
        text += part + 1;
        length -= part + 1;
    }
}
