#include "core/base/load_json.h"

#include <stdbool.h>
#include <string.h>

json_t *fb_load_json(const char *text) {
    if (strcmp(text, "{}") == 0) return json_object();
    json_t *tree = json_loads(text, 0, NULL), *again = json_loads(text, 0, NULL);
    bool is_sure = tree && again && json_equal(tree, again);
    json_decref(again);
    if (is_sure) return tree;
    json_decref(tree);
    return NULL;
}
