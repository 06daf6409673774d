/* The plan of a layout as lines, and as a Python module. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "layout_plans_py.inc"
#include "server/cli/cli.h"

static void put_numbers(fb_buffer *out, const json_t *list) {
    size_t i;
    const json_t *number;
    json_array_foreach(list, i, number) fb_buffer_printf(out, i ? ", %lld" : "%lld", (long long)json_integer_value(number));
}

/* "[0:64, 0:32]" */
static void put_ranges(fb_buffer *out, const json_t *ranges) {
    size_t i;
    const json_t *range;
    fb_buffer_char(out, '[');
    json_array_foreach(ranges, i, range)
        fb_buffer_printf(out, "%s%lld:%lld", i ? ", " : "", (long long)json_integer_value(json_array_get(range, 0)),
                         (long long)json_integer_value(json_array_get(range, 1)));
    fb_buffer_char(out, ']');
}

/* A step as PyTorch spells it. */
static void put_step(fb_buffer *out, const json_t *step) {
    const json_t *index = json_object_get(step, "index"), *list;
    if ((list = json_object_get(step, "slice"))) {
        put_ranges(out, list);
    } else if (index) {
        fb_buffer_printf(out, ".index_select(%lld, places((", (long long)json_integer_value(json_object_get(index, "axis")));
        put_numbers(out, json_object_get(index, "reshape"));
        fb_buffer_string(out, "), (");
        put_numbers(out, json_object_get(index, "permute"));
        fb_buffer_string(out, ")))");
    } else {
        bool is_reshape = (list = json_object_get(step, "reshape")) != NULL;
        if (!is_reshape) list = json_object_get(step, "permute");
        fb_buffer_string(out, is_reshape ? ".reshape((" : ".permute((");
        put_numbers(out, list);
        fb_buffer_string(out, json_array_size(list) == 1 ? ",))" : "))");
    }
}

static void put_steps(fb_buffer *out, const json_t *steps) {
    size_t i;
    const json_t *step;
    json_array_foreach(steps, i, step) put_step(out, step);
}

static void print(fb_buffer *text) {
    if (fb_buffer_text(text)) fb_screen_lines(stdout, fb_buffer_text(text));
    fb_buffer_free(text);
}

void fb_layout_plan_show(const json_t *plan) {
    size_t i;
    const json_t *one;
    fb_buffer text = {0};
    json_array_foreach(json_object_get(plan, "copies"), i, one) {
        fb_buffer_string(&text, fb_text_of(one, "made"));
        put_steps(&text, json_object_get(one, "part"));
        fb_buffer_printf(&text, " <- %s", fb_text_of(one, "source"));
        put_steps(&text, json_object_get(one, "of"));
        fb_buffer_char(&text, '\n');
    }
    json_array_foreach(json_object_get(plan, "fills"), i, one) {
        fb_buffer_string(&text, fb_text_of(one, "made"));
        put_steps(&text, json_object_get(one, "part"));
        fb_buffer_printf(&text, " <- %g\n", json_number_value(json_object_get(one, "value")));
    }
    print(&text);
}

/* The client's module, which needs nothing but PyTorch, with the plan in it. */
void fb_layout_plan_python(const json_t *plan) {
    char *json = json_dumps(plan, JSON_COMPACT);
    fb_buffer text = {0};
    fb_buffer_append(&text, layout_plans_py, sizeof layout_plans_py - 1);
    fb_buffer_printf(&text, "\n\n# ---- %s, version %lld ----\n\nPLAN: dict[str, Any] = json.loads(\n    ",
                     fb_text_of(plan, "layout"), (long long)json_integer_value(json_object_get(plan, "version")));
    text.failed |= !json;
    if (json) fb_buffer_json_string(&text, json, strlen(json)); /* which Python reads as it is */
    fb_buffer_string(&text, "\n)\n\n\n"
                            "def apply(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:\n"
                            "    return run(PLAN, tensors)\n\n\n"
                            "def undo(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:\n"
                            "    return run(PLAN, tensors, undo=True)\n");
    free(json);
    print(&text);
}
