/* Facts about module types: which parameters and buffers a type has, and how their shapes follow from its config with
 * PyTorch's defaults. The facts are rows of modules.def. */
#ifndef FB_ANALYSIS_MODULE_H
#define FB_ANALYSIS_MODULE_H

#include "core/graph/graph.h"

/* Reports (code "config-contradicts-tensor") every disagreement between a module's config and its parameters and buffers, and
 * config values that no module of the type can have. Types without a row are not checked, nor is what depends on a member that
 * is absent and has no default. `position` is the module's in the document's list. */
void fb_module_check(const fb_graph *graph, fb_module module, size_t position, fb_errors *errors);

/* The module owns a parameter or buffer that its type does not have (`weight_orig` of pruning, `weight_g` of weight_norm): a
 * hook computes what the type's own names say, so a missing `bias` need not be absent. False for types without a row. */
bool fb_module_is_reparametrised(const fb_graph *graph, fb_module module);

#endif
