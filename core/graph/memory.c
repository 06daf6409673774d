/* Memory that is out. */
#include "core/graph/internal.h"

fb_value fb_graph_fail_memory(fb_graph *graph) {
    graph->out_of_memory = true;
    return (fb_value){0};
}
