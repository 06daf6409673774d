/* Calls of ONNX's operators, as the analyses ask of any call. ONNX has values and no memory: no operator writes into what it is
 * given, and no two values share anything. */
#ifndef FB_ANALYSIS_ONNX_H
#define FB_ANALYSIS_ONNX_H

#include "core/analysis/identity.h"
#include "core/analysis/view.h"

/* Of any node of an ONNX graph. What is not known may do anything but write. */
fb_effects fb_onnx_effects(const fb_graph *graph, fb_node node);
/* The number of results that the node's message names; -1: it gives one value, and not a list of them. */
int64_t fb_onnx_results(const fb_graph *graph, fb_node node);
/* One behind the last program that a pass over whole programs looks at: of an ONNX model those within are the model's own
 * code; of others only the main program is. */
uint32_t fb_programs_to_clean(const fb_graph *graph);
/* The program that a get_attr node reads; none for another node, or none. */
fb_program fb_onnx_program_read_by(const fb_graph *graph, fb_node node);
/* Is the placeholder of a nested program a value of the program around it? */
bool fb_onnx_is_captured(const fb_graph *graph, fb_node placeholder);
/* TensorProto.DataType by its number. */
fb_dtype fb_onnx_dtype(int64_t number);
int64_t fb_onnx_dtype_number(fb_dtype dtype); /* 0: it has none */
/* One number: the constant, of one element whose bytes are in the document. */
bool fb_onnx_number(const fb_graph *graph, fb_value argument, double *out);
/* Integers that earlier versions have as an attribute, later ones as a constant input. The count; -1: they are not given; -2:
 * they are not known, or more than `most`. */
int fb_onnx_ints_of(const fb_graph *graph, fb_node node, const char *attribute, size_t input, int64_t *out, int most);
/* The same of places in a dimension: what no dimension is as large as becomes INT64_MAX or INT64_MIN. */
int fb_onnx_bounds_of(const fb_graph *graph, fb_node node, const char *attribute, size_t input, int64_t *out, int most);
/* The inputs that give a call what it takes where they are absent, as the zeros of a state: from this index on; 0: none. */
size_t fb_onnx_needless_inputs(const fb_graph *graph, fb_node node);
/* As fb_identity_at. */
bool fb_onnx_identity_at(const fb_graph *graph, fb_node node, fb_identity *identity);

#endif
