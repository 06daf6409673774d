/* The reader's own state; for core/document/read*.c and spelling.c alone. */
#ifndef FB_DOCUMENT_READ_H
#define FB_DOCUMENT_READ_H

#include "core/document/document.h"
#include "core/graph/build.h"
#include "core/json/scan.h"

/* An error about a `$node` whose name was not known when it was read. At the end of its program it turns out whether the name
 * comes later or never. */
typedef struct fb_unknown_node {
    size_t error; /* index in errors->items */
    fb_symbol name;
} fb_unknown_node;

/* The names of members.def. */
typedef enum fb_member {
    FB_MEMBER_OTHER,
#define FB_MEMBER(word) FB_MEMBER_##word,
#define FB_FORM(word) FB_FORM_##word,
#include "core/document/members.def"
#undef FB_MEMBER
#undef FB_FORM
    FB_MEMBER_COUNT
} fb_member;

/* An array or an object in which nothing was wrong. */
typedef struct fb_known_value {
    const char *text;
    size_t size;
    bool symbols_are_allowed;
    fb_value value;
} fb_known_value;

/* Says what is wrong with a text; NULL if it is right. */
typedef const char *fb_spelling(const char *text, size_t length);

typedef struct fb_known_symbol {
    fb_symbol symbol;
    uint32_t length;
    fb_spelling *wrong; /* by which nothing is; may be NULL */
} fb_known_symbol;

/* Names that are likely to come in this order. */
typedef struct fb_name_list {
    fb_symbol *names;
    size_t count, capacity, seen;
} fb_name_list;

typedef struct fb_reader {
    fb_graph *graph;
    fb_scan scan;
    fb_scan_names names;          /* of fb_member, and of keys that were read */
    fb_value keys[FB_SCAN_NAMES]; /* these names as strings; none: not asked for yet */
    fb_errors *errors;
    size_t max_nodes, node_count;

    /* The value in hand: an element of one of the outer lists ("/nodes", 17), or a whole outer member ("/name", SIZE_MAX). */
    const fb_json *element;
    const char *section;
    size_t index;
    fb_program program;     /* of the node in hand */
    fb_symbol node_name;    /* of the node in hand; none outside nodes */
    bool nodes_are_allowed; /* in the value in hand */

    fb_value *items; /* stack of values whose container is still open */
    size_t item_count, item_capacity;
    fb_unknown_node *unknown_nodes; /* of this program */
    size_t unknown_count, unknown_capacity;
    fb_known_symbol symbols[256];  /* that were read last, by how they end */
    fb_known_value known[256];     /* that were read last, by their texts */
    bool modules_wait;             /* for all tensors, when these come later; */
    bool tensors_are_late;         /* else modules were read before them, */
    bool has_all_tensors;          /* and own those that came; */
    fb_name_list modules, tensors; /* that nodes call; as the tensors come, or late ones are owned */
    fb_buffer text;                /* scratch */
    fb_buffer requires_grad_given; /* a byte per tensor, by id - 1 */
    bool failed;                   /* memory is out */
    fb_work work;                  /* once it is stopped, `failed` or scan.status ends the reading */
} fb_reader;

void fb_reader_no_memory(fb_reader *reader);
/* Reports an error at an entry of the element in hand; NULL when it is only counted. */
fb_error *fb_reader_error(fb_reader *reader, const fb_json *at, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Reports wrong-type and returns false when the value is of another kind. */
bool fb_expect(fb_reader *reader, const fb_json *value, fb_json_kind kind);
/* Finds the key among the members, and looks at `likely` first: its index, or `count`. */
size_t fb_find_member(const fb_json *key, const uint8_t *members, size_t count, size_t likely);
/* Sorts an object's members: found[i] is the value of members[i], or NULL. Returns how many others there are. */
size_t fb_find_members(const fb_json *object, const uint8_t *members, size_t count, const fb_json **found);
/* Reports every other member. */
void fb_refuse_unknown(fb_reader *reader, const fb_json *object, const uint8_t *members, size_t count);
/* The member's value if it is there and of that kind; otherwise reports missing-member at the object, or wrong-type. */
const fb_json *fb_require(fb_reader *reader, const fb_json *object, const fb_json *value, const char *name, fb_json_kind kind);
/* Likewise for a member that may be missing. */
const fb_json *fb_optional(fb_reader *reader, const fb_json *value, fb_json_kind kind);
bool fb_optional_bool(fb_reader *reader, const fb_json *value);

/* Lets the scanner recognise the format's members. */
void fb_reader_know_members(fb_reader *reader);

fb_symbol fb_read_symbol(fb_reader *reader, const fb_json *string);
/* Finds a tensor by its name. Reports an unknown name, and gives none. */
fb_tensor fb_read_tensor_reference(fb_reader *reader, const fb_json *name);
/* Puts a name on the list; and reads one that may be on it. */
void fb_expect_name(fb_reader *reader, fb_name_list *list, fb_symbol name);
fb_symbol fb_read_expected(fb_reader *reader, fb_name_list *list, const fb_json *name);
/* A name that no document can give, for a row whose own is missing or taken: so the row, and later pointers, keep their place.
 */
fb_symbol fb_stand_in_name(fb_reader *reader, uint32_t number);

/* ---- spelling ------------------------------------------------------------------------------------------------------------ */

fb_spelling fb_wrong_identifier; /* an identifier and no keyword */
fb_spelling fb_wrong_word;       /* an identifier */
fb_spelling fb_wrong_dotted;     /* identifiers joined by dots */
fb_spelling fb_wrong_path;       /* of a module or an attribute */
fb_spelling fb_wrong_attribute;  /* a path's part */
fb_spelling fb_wrong_annotation;
fb_spelling fb_wrong_label; /* a tensor's name, a module's type: any text in one line */
fb_spelling fb_wrong_device;
fb_spelling fb_wrong_symbolic_size;

/* Reports `code` when the string is spelled wrong. */
bool fb_check_spelling(fb_reader *reader, const fb_json *string, fb_spelling *wrong, const char *code);
/* The same for a text that may come again, and is read. */
bool fb_read_spelled(fb_reader *reader, const fb_json *string, fb_spelling *wrong, const char *code, fb_symbol *out);

/* ---- values (read_value.c): a wrong value is reported and becomes None; none when memory is out -------------------------- */

/* An object as FB_MAP. */
fb_value fb_read_map_sorted(fb_reader *reader, const fb_json *object);
/* Reads the other members as an FB_MAP of FB_RAW, sorted; none if the object has no others. */
fb_value fb_read_rest(fb_reader *reader, const fb_json *object, const uint8_t *members, size_t count);
/* A list of distinct strings, as FB_LIST; none when it is empty. */
fb_value fb_read_strings(fb_reader *reader, const fb_json *array);
/* None, and an error, when it is not a shape. Symbolic sizes are for results, not for tensors. */
fb_value fb_read_shape(fb_reader *reader, const fb_json *tree, bool symbols_are_allowed);
/* FB_DTYPE_OTHER: it is not known here, but spelled as a dtype is. */
fb_dtype fb_read_dtype(fb_reader *reader, const fb_json *tree);
fb_value fb_read_recipe(fb_reader *reader, const fb_json *tree);

/* Values are gathered on a stack: push the items, then make a value of those since there were `base`. */
void fb_push(fb_reader *reader, fb_value value);
void fb_push_key(fb_reader *reader, const fb_json *key);
fb_value fb_pop_items(fb_reader *reader, fb_kind kind, fb_symbol symbol, size_t base);
/* The index of the first value that repeats an earlier one, among the values since there were `base`, taking every `step`-th;
 * SIZE_MAX: none. */
size_t fb_find_repeat(fb_reader *reader, size_t base, size_t step);

/* ---- elements: each adds one row at the end of its list ------------------------------------------------------------------ */

void fb_read_node(fb_reader *reader, const fb_json *tree); /* to reader->program */
void fb_end_program(fb_reader *reader);
void fb_read_module(fb_reader *reader, const fb_json *tree); /* when the tensors have been read */
/* Returns the recipe, for which all tensors must be there; NULL when it has none. */
const fb_json *fb_read_tensor(fb_reader *reader, const fb_json *tree);

#endif
