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
/* As fb_identity_at. */
bool fb_onnx_identity_at(const fb_graph *graph, fb_node node, fb_identity *identity);

#endif
