/* Facts of the Python language that names and generated code depend on, as CPython 3.11 has them: its words, and the classes
 * of Unicode 14.0 characters that repr and str.isidentifier look at. */
#ifndef FB_GRAPH_PYTHON_H
#define FB_GRAPH_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"

typedef enum fb_word {
    FB_WORD_FREE = 0,   /* none of the following */
    FB_WORD_KEYWORD,    /* keyword.kwlist: "class", also "None", "True" and "False" */
    FB_WORD_BUILTIN,    /* dir(builtins): "getattr" */
    FB_WORD_REGISTERED, /* globals that torch.fx gives to all generated code: "torch", "device", "inf" */
} fb_word;

/* The kind of a word in generated code. Everything but FB_WORD_FREE is an illegal name of torch.fx's _illegal_names. */
fb_word fb_python_word(const char *text, size_t length);

/* str.isidentifier(): true for keywords as well, false for "" and for what is not UTF-8. */
bool fb_python_is_identifier(const char *text, size_t length);
/* True if a member can be written as this name, behind a dot or before the value of a keyword argument: Python reads it as it
 * is. */
bool fb_python_is_member(const char *text, size_t length);
/* Identifiers joined by dots. */
bool fb_python_is_dotted(const char *text, size_t length);

/* The code point at `text` and how many bytes it takes; UINT32_MAX and 1 for what is not UTF-8. `length` is at least 1. */
uint32_t fb_utf8_decode(const char *text, size_t length, size_t *size);

/* str.isprintable() of one character: repr escapes the others. */
bool fb_unicode_is_printable(uint32_t code);
bool fb_unicode_starts_identifier(uint32_t code);
bool fb_unicode_continues_identifier(uint32_t code);
/* True if Python reads a character of an identifier as it is. Of others it may take the NFKC form of the identifier, which is
 * another name. */
bool fb_unicode_is_normal(uint32_t code);
/* The value of a decimal digit of any script, which is what `\d` matches; -1 for other characters. */
int fb_unicode_digit(uint32_t code);

/* ---- Python literals as repr prints them. ------------------------------------------------------------------------------- */

/* repr(str): quoted, and escaped so that any text is one token on one line. Bytes that are not UTF-8 become \xNN. */
void fb_repr_string(fb_buffer *out, const char *text, size_t length);
/* repr(float); "inf" and "nan" are names in generated code. */
void fb_repr_float(fb_buffer *out, double value);
/* repr(complex): "2j", "(1-2j)", "(-0+nanj)". */
void fb_repr_complex(fb_buffer *out, double real, double imaginary);

#endif
