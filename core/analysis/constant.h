/* Constants: buffers that no checkpoint has, whose bytes are in the document; and the lattice of what depends on constants
 * only.
 */
#ifndef FB_ANALYSIS_CONSTANT_H
#define FB_ANALYSIS_CONSTANT_H

#include "core/analysis/alias.h"
#include "core/analysis/obstacle.h"
#include "core/analysis/scopes.h"
#include "core/base/work.h"

/* Does the get_attr node read such a buffer? */
bool fb_reads_bytes(const fb_graph *graph, fb_node read, fb_tensor *tensor);
/* … and is it never written? */
bool fb_reads_constant(const fb_graph *graph, const fb_alias *alias, fb_node read, fb_tensor *tensor);

/* ---- the lattice --------------------------------------------------------------------------------------------------------- */

typedef enum fb_lattice_value {
    FB_VARIES = 0, /* it depends on an input, or must stay */
    FB_SOURCE,     /* a get_attr node of what the caller takes for constant: weights, or buffers */
    FB_CONSTANT,   /* a call on nothing but such */
} fb_lattice_value;

/* The nodes of the main program, and of an ONNX model's programs within, which the caller judges one by one; all vary at
 * first. */
typedef struct fb_constants {
    const fb_graph *graph;
    const fb_alias *alias;
    fb_work *work;
    fb_scopes scopes;
    uint8_t *lattice;     /* by node: fb_lattice_value */
    fb_obstacle *refused; /* by node that varies: why it must stay, though it looks constant; or none */
    bool has_refused;     /* there are such */
    fb_obstacle *seen;    /* by memory: why a constant may not use it (fb_constants_find_seen) */
    bool *is_open;        /* by memory: what varies may write it, or reads it before the last write */
    bool *is_home;        /* by node before `unjudged`: surely on the CPU, as a buffer is */
    fb_node unjudged;
    int open_levels; /* of torch.vmap, at the node that is looked at: a type doesn't show what is batched there */
} fb_constants;

/* False when memory is out; freed in any case. */
bool fb_constants_begin(fb_constants *constants, const fb_graph *graph, const fb_alias *alias, fb_work *work);
void fb_constants_end(fb_constants *constants);

/* Has the call an attribute of the ONNX function that it is in, which each call of that gives? */
bool fb_reads_attribute_of_function(const fb_graph *graph, fb_node node);
/* Reads the node nothing but what is constant, or the type of what is recorded as numbers and is on the CPU? */
bool fb_reads_constants_only(fb_constants *constants, fb_node node);
bool fb_names_another_device(const fb_graph *graph, fb_node node); /* … than the CPU */
/* Does what varies read it? */
bool fb_constant_is_read_outside(const fb_constants *constants, fb_node node);
/* It varies, and must stay; the detail must live as long. */
void fb_constants_refuse(fb_constants *constants, fb_node node, const char *code, const char *detail);
/* Finds the memories that the caller of the graph sees, and those whose layout varying calls ask for, as `what` has another. */
void fb_constants_find_seen(fb_constants *constants, const char *what);
/* Makes readers of what varies vary, and what is written in place by them, or after they read it; until nothing changes. */
void fb_constants_settle(fb_constants *constants);

#endif
