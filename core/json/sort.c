/* Keys of JSON objects, sorted. */
#include <string.h>

#include "core/base/sort.h"
#include "core/json/scan.h"

static int compare_keys(const void *a, const void *b) {
    const fb_json *x = *(const fb_json *const *)a, *y = *(const fb_json *const *)b;
    int order = memcmp(x->text, y->text, x->count < y->count ? x->count : y->count);
    return order ? order : (x->count > y->count) - (x->count < y->count);
}

#define FEW 16 /* keys that are put where they belong one by one */

void fb_json_sort_keys(const fb_json *object, const fb_json **keys) {
    const fb_json *key = fb_json_first(object);
    bool is_sorted = true;
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        uint32_t at = i;
        while (at && at < FEW && compare_keys(&keys[at - 1], &key) > 0) {
            keys[at] = keys[at - 1];
            at--;
        }
        keys[at] = key;
        if (i >= FEW && compare_keys(&keys[i - 1], &keys[i]) > 0) is_sorted = false;
    }
    if (!is_sorted) fb_sort(keys, object->count, sizeof *keys, compare_keys);
}
