/* Documents in the functional dialect. */
#ifndef FB_TESTS_FUNCTIONAL_H
#define FB_TESTS_FUNCTIONAL_H

#include <jansson.h>

/* Calls of torch.nn.Linear, Conv2d, BatchNorm1d and BatchNorm2d that are in eval mode become calls of functions whose weights
 * get_attr nodes read, right before them; of modules that are called otherwise, too, one call in two. A module all of whose
 * calls became functions is a torch.nn.Module afterwards. Gives how many calls became functions. */
size_t make_functional(json_t *document);

#endif
