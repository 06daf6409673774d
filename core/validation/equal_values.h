/* Values of two graphs that are equal by content: they need no evaluation. */
#ifndef FB_VALIDATION_EQUAL_VALUES_H
#define FB_VALIDATION_EQUAL_VALUES_H

#include "core/base/work.h"
#include "core/graph/graph.h"
#include "core/weights/blobs.h"

typedef struct fb_equal_values {
    uint32_t *of_a, *of_b; /* by node of the main program: values of equal numbers are equal; 0 = nothing is known */
    unsigned char *has_shape_of_a, *has_shape_of_b; /* by node: its recorded shape follows from operators; by movement alone */
    uint32_t end_of_a, end_of_b; /* the same of all that is written: inputs, buffers, the state of random numbers */
    size_t lonely_weights[2];    /* that a, and b, reads and the other does not, nor anything that they are a movement of */
    bool has_writes;             /* one of the graphs writes into a tensor, or has an effect that later calls may see */
} fb_equal_values;

typedef struct fb_equality {
    const fb_graph *a, *b;     /* perhaps one: then it is equal to itself, also where bytes are not known */
    const fb_node *input_of_b; /* by node of b: the placeholder of a that is given the same; none = no such */
    const fb_blobs *blobs;     /* NULL: inline bytes are known alone */
    bool random_weights;       /* tensors whose bytes are not known are equal where name, dtype and shape are */
    bool any_weights;          /* all tensors are equal where dtype and shape are: do the graphs differ in nothing else? */
    fb_work *work;
} fb_equality;

/* Equal are calls of the same operator on equal values, with the same other arguments and the same bytes of weights, in the
 * same state of all that is written. By movement, a value is also equal to its copy, and to itself in another shape that has
 * its shape again, as far as shapes follow from operators; not where memory is written or strides are read. FB_NO_MEMORY, or
 * what the work is stopped with. Linear but for the bytes of weights that the graphs have at different places. */
fb_status fb_equal_values_find(const fb_equality *equality, bool by_movement, fb_equal_values *out, fb_error *error);
void fb_equal_values_free(fb_equal_values *values);

/* Do later calls see that this one ran? Assertions change nothing; they may fail, which is not a matter of results. */
bool fb_changes_state(const fb_graph *graph, fb_node node);

#endif
