/* What the files that write Python code share; for core/graph/code*.c alone. */
#ifndef FB_GRAPH_CODE_WRITER_H
#define FB_GRAPH_CODE_WRITER_H

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/base/table.h"
#include "core/graph/graph.h"
#include "core/graph/namespace.h"

/* A class of a type, or a function: something with a global name that was made for it. */
typedef struct fb_code_class {
    const char *word; /* in a type; the qualified name with `_` for its dots */
    size_t length;
    const char *name; /* in this code */
    bool is_called;   /* known as a function's qualified name */
} fb_code_class;

/* Names are made when they are first printed and kept: as in torch.fx, the order of first use decides who gets the plain name.
 */
typedef struct fb_code_writer {
    const fb_graph *graph;
    fb_namespace *names;
    const char **node_names; /* by node */
    const char **globals;    /* by symbol: how a function or class of that qualified name is called */
    const char **types;      /* by symbol: the text of an annotation, in `texts` */
    fb_table classes;        /* of fb_code_class */
    fb_map class_index;      /* hash of the word -> classes */
    fb_arena texts;
    fb_buffer *out;
    bool failed; /* memory was out for a name */
} fb_code_writer;

/* code_names.c. `out` is left to the caller. False when memory is out; free it all the same. */
bool fb_code_writer_init(fb_code_writer *writer, const fb_graph *graph);
void fb_code_writer_free(fb_code_writer *writer);
const char *fb_code_node_name(fb_code_writer *writer, fb_node node);
/* `hint` is the qualified name, or what torch.fx uses in its place. */
const char *fb_code_global(fb_code_writer *writer, fb_symbol qualified_name, const char *hint);
/* `text` is made of words and characters of `marks`, has at least one word and no keyword but None, True and False. */
bool fb_code_is_plain(const char *text, size_t length, const char *marks);

typedef struct fb_code_operator {
    const char *name;   /* of Python's operator module */
    const char *format; /* `$` stands for the next argument */
    bool is_statement;  /* changes its first argument in place */
} fb_code_operator;

/* The operator that a function target is printed as, or NULL. */
const fb_code_operator *fb_code_find_operator(const char *target);

/* code_types.c: the text of an annotation; NULL when there is none or memory is out. */
const char *fb_code_type(fb_code_writer *writer, fb_symbol type);
/* The global name for a word of a type or (is_called) for a qualified name with `_` for its dots, made from `hint` or the word.
 * NULL when memory is out. Ask once for each qualified name. */
const char *fb_code_class_name(fb_code_writer *writer, const char *word, size_t length, const char *hint, bool is_called);

/* code_values.c */
void fb_code_value(fb_code_writer *writer, fb_value value);
/* `a, b, key = c`, from the given positional argument on. */
void fb_code_arguments(fb_code_writer *writer, const fb_node_row *row, size_t from);
/* The attribute path below a value (none = self): `.part` for an identifier, getattr for anything else. */
void fb_code_path(fb_code_writer *writer, fb_value base, const char *path, size_t length);

#endif
