/* Undoing on graphs that were changed since: what merges, and each conflict. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/undo.h"
#include "core/graph/document.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"

/* Texts are written with ' for ". */
static char *unquoted(const char *text) {
    char *copy = strdup(text);
    for (char *at = copy; *at; at++) {
        if (*at == '\'') *at = '"';
    }
    return copy;
}

static fb_composition composition_of(const char *quoted) {
    char *text = unquoted(quoted);
    json_t *list = json_loads(text, 0, NULL);
    fb_composition composition;
    fb_error error = {0};
    ck_assert_msg(fb_composition_read(list, "", &composition, &error) == FB_OK, "%s: %s", text, error.message);
    json_decref(list);
    free(text);
    return composition;
}

static char *text_of(const fb_graph *graph) {
    fb_buffer text = {0};
    fb_document_write(graph, &text);
    return fb_buffer_take(&text, NULL);
}

/* A change that a client makes: a part of the canonical document (which is there once) becomes another. */
typedef struct change {
    const char *from, *to;
} change;

#define CHANGES_MAX 6

static char *changed(char *document, const change *changes) {
    for (size_t i = 0; i < CHANGES_MAX && changes[i].from; i++) {
        char *from = unquoted(changes[i].from), *to = unquoted(changes[i].to), *at = strstr(document, from);
        ck_assert_msg(at != NULL, "%s is not in %s", from, document);
        ck_assert_msg(strstr(at + 1, from) == NULL, "%s is twice in %s", from, document);
        size_t size = strlen(document) - strlen(from) + strlen(to) + 1;
        char *next = malloc(size);
        snprintf(next, size, "%.*s%s%s", (int)(at - document), document, to, at + strlen(from));
        free(document);
        document = next;
        free(from);
        free(to);
    }
    return document;
}

static fb_graph *changed_graph(const fb_graph *graph, const change *changes) {
    char *text = changed(text_of(graph), changes);
    fb_graph *result = graph_of(text, strlen(text));
    free(text);
    return result;
}

typedef struct undo_case {
    const char *name;
    const char *nodes, *modules, *tensors; /* the source */
    const char *passes;                    /* all of it */
    const char *undone;                    /* positions: "02" */
    change changes[CHANGES_MAX];           /* made to the result */
    const char *conflicts;                 /* "code kind name\n" for each, or NULL: it merges */
    change expected[CHANGES_MAX];          /* … into the replay with these changes */
} undo_case;

static char *conflicts_text(const fb_conflicts *conflicts) {
    fb_buffer text = {0};
    for (size_t i = 0; i < conflicts->count; i++) {
        const fb_conflict *c = &conflicts->items[i];
        fb_buffer_printf(&text, "%s %s %s\n", c->code, fb_conflict_kind_name(c->kind), c->name);
        ck_assert(strlen(c->detail) > 10);
    }
    fb_buffer_string(&text, "");
    return fb_buffer_take(&text, NULL);
}

typedef struct prepared {
    fb_graph *source, *ours;
    fb_composition composition, rest;
    fb_run whole, replay;
    fb_undo_step steps[8];
    fb_undo_plan plan;
} prepared;

static prepared prepare(const undo_case *c) {
    prepared p = {.composition = composition_of(c->passes)};
    fb_error error = {0};
    char *nodes = unquoted(c->nodes), *modules = unquoted(c->modules), *tensors = unquoted(c->tensors);
    char *document = document_of(nodes, modules, tensors);
    p.source = graph_of(document, strlen(document));
    bool selected[8] = {false};
    for (const char *at = c->undone; *at; at++) selected[*at - '0'] = true;
    ck_assert(!fb_composition_without(&p.composition, selected, &p.rest, &error));
    ck_assert_msg(!fb_composition_run(&p.composition, p.source, FB_LINT_EACH, &p.whole, &error), "%s", error.message);
    ck_assert_msg(!fb_composition_run(&p.rest, p.source, FB_LINT_EACH, &p.replay, &error), "%s", error.message);
    for (size_t i = 0; i < p.composition.count; i++)
        p.steps[i] = (fb_undo_step){.call = &p.composition.calls[i], .is_undone = selected[i]};
    p.ours = changed_graph(p.whole.result, c->changes);
    free(nodes);
    free(modules);
    free(tensors);
    free(document);
    return p;
}

static fb_undo_plan plan_of(const prepared *p) {
    return (fb_undo_plan){
        .source = p->source, .steps = p->steps, .step_count = p->composition.count, .result = p->whole.result, .ours = p->ours};
}

static void forget(prepared *p) {
    fb_graph_free(p->source);
    fb_graph_free(p->ours);
    fb_composition_free(&p->composition);
    fb_composition_free(&p->rest);
    fb_run_free(&p->whole);
    fb_run_free(&p->replay);
}

/* Two Linears that one value feeds, each with a reader. */
#define PAIR_NODES(q, k)                                                                                                       \
    "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                                   \
    "{'name':'q','op':'call_module','target':'" q "','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}},"        \
    "{'name':'k','op':'call_module','target':'" k "','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}},"        \
    "{'name':'relu','op':'call_function','target':'torch.relu','args':[{'$node':'q'}]},"                                       \
    "{'name':'tanh','op':'call_function','target':'torch.tanh','args':[{'$node':'k'}]},"                                       \
    "{'name':'add','op':'call_function','target':'operator.add','args':[{'$node':'relu'},{'$node':'tanh'}]},"                  \
    "{'name':'output','op':'output','target':'output','args':[{'$node':'add'}]}"
#define LINEAR(path, weight, bias)                                                                                             \
    "{'path':'" path "','type':'torch.nn.Linear','config':{'in_features':4,'out_features':4,'bias':" bias                      \
    "},'parameters':{'weight':'" weight "','bias':"
#define PAIR_MODULES                                                                                                           \
    "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "true") "'q.bias'}}," LINEAR("k", "k.weight",              \
                                                                                                 "true") "'k.bias'}}"
#define TENSOR(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape "}"
#define PAIR_TENSORS                                                                                                           \
    TENSOR("q.weight", "[4,4]") "," TENSOR("q.bias", "[4]") "," TENSOR("k.weight", "[4,4]") "," TENSOR("k.bias", "[4]")
#define PAIR .nodes = PAIR_NODES("q", "k"), .modules = PAIR_MODULES, .tensors = PAIR_TENSORS
#define MERGE_ALL .passes = "['MergeLinears']", .undone = "0"

/* A convolution, its BatchNorm, and a reader. */
#define NORM                                                                                                                   \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[1,2,4,4],'dtype':'float32'}},"                      \
             "{'name':'conv','op':'call_module','target':'conv','args':[{'$node':'x'}]},"                                      \
             "{'name':'bn','op':'call_module','target':'bn','args':[{'$node':'conv'}]},"                                       \
             "{'name':'relu','op':'call_function','target':'torch.relu','args':[{'$node':'bn'}]},"                             \
             "{'name':'output','op':'output','target':'output','args':[{'$node':'relu'}]}",                                    \
    .modules = "{'path':'','type':'torch.nn.Module'},"                                                                         \
               "{'path':'conv','type':'torch.nn.Conv2d','config':{'in_channels':2,'out_channels':2,'kernel_size':1,"           \
               "'bias':true},'parameters':{'weight':'conv.weight','bias':'conv.bias'}},"                                       \
               "{'path':'bn','type':'torch.nn.BatchNorm2d','config':{'num_features':2},'parameters':{'weight':'bn.weight',"    \
               "'bias':'bn.bias'},'buffers':{'running_mean':'bn.running_mean','running_var':'bn.running_var'}}",               \
    .tensors = TENSOR("conv.weight", "[2,2,1,1]") "," TENSOR("conv.bias", "[2]") "," TENSOR("bn.weight", "[2]") "," TENSOR(    \
        "bn.bias", "[2]") "," TENSOR("bn.running_mean", "[2]") "," TENSOR("bn.running_var", "[2]"),                            \
    .passes = "['FuseBatchNorm2dInConv2d']", .undone = "0"

/* A Linear, its BatchNorm, and a reader. */
#define LINEAR_NORM                                                                                                            \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'l','op':'call_module','target':'l','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}},"   \
             "{'name':'bn','op':'call_module','target':'bn','args':[{'$node':'l'}]},"                                          \
             "{'name':'output','op':'output','target':'output','args':[{'$node':'bn'}]}",                                      \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR(                                                                 \
        "l", "l.weight",                                                                                                       \
        "true") "'l.bias'}},"                                                                                                  \
                "{'path':'bn','type':'torch.nn.BatchNorm1d','config':{'num_features':4},'parameters':{'weight':'bn.weight',"   \
                "'bias':'bn.bias'},'buffers':{'running_mean':'bn.running_mean','running_var':'bn.running_var'}}",              \
    .tensors = TENSOR("l.weight", "[4,4]") "," TENSOR("l.bias", "[4]") "," TENSOR("bn.weight", "[4]") "," TENSOR(              \
        "bn.bias", "[4]") "," TENSOR("bn.running_mean", "[4]") "," TENSOR("bn.running_var", "[4]"),                            \
    .passes = "['FuseBatchNorm1dInLinear','FuseBiasInLinear']", .undone = "0"

#define OUTPUT "{'name':'output','op':'output'"
#define READER(name, input)                                                                                                    \
    "{'name':'" name "','op':'call_function','target':'torch.sin','args':[{'$node':'" input "'}]}," OUTPUT
#define WRITE "{'name':'w','op':'call_method','target':'relu_','args':[{'$node':'x'}],'kwargs':{},'meta':{}},"
#define DIGEST_A "'digest':'sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
#define WEIGHT_RECIPE "'recipe':{'op':'concat','args':['q.weight','k.weight'],'axis':0}"
#define TENSOR_OUT(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape ",'requires_grad':true},"
#define WHOLE_TENSOR(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape "}"
#define CUT(name, shape, from, start, stop)                                                                                    \
    "{'name':'" name "','dtype':'float32','shape':" shape ",'recipe':{'op':'slice','args':['" from                             \
    "'],'axis':0,'start':" start ",'stop':" stop "}}"

#define MERGED_TENSOR "{'name':'q-k-merged.weight','dtype':'float32','shape':[8,4],'requires_grad':true," DIGEST_A "}"
#define TENSOR_LAST(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape ",'requires_grad':true}"

/* Only the first of the two has a bias. */
#define MIXED                                                                                                                  \
    .nodes = PAIR_NODES("q", "k"),                                                                                             \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "true") "'q.bias'}}," LINEAR("k", "k.weight",   \
                                                                                                            "false") "null}}", \
    .tensors = TENSOR("q.weight", "[4,4]") "," TENSOR("q.bias", "[4]") "," TENSOR("k.weight", "[4,4]")
#define BIAS_RECIPE                                                                                                            \
    "'recipe':{'op':'concat','args':['q.bias',{'op':'full','args':[],'shape':[4],'value':{'$float':'0.0'}}],'axis':0}"

/* The same, and a third one without a bias. */
#define THREE                                                                                                                  \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'q','op':'call_module','target':'q','args':[{'$node':'x'}]},"                                            \
             "{'name':'k','op':'call_module','target':'k','args':[{'$node':'x'}]},"                                            \
             "{'name':'v','op':'call_module','target':'v','args':[{'$node':'x'}]},"                                            \
             "{'name':'output','op':'output','target':'output','args':[[{'$node':'q'},{'$node':'k'},{'$node':'v'}]]}",         \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "true") "'q.bias'}}," LINEAR(                   \
        "k", "k.weight", "false") "null}}," LINEAR("v", "v.weight", "false") "null}}",                                         \
    .tensors = TENSOR("q.weight", "[4,4]") "," TENSOR("q.bias", "[4]") "," TENSOR("k.weight", "[4,4]") "," TENSOR("v.weight",  \
                                                                                                                  "[4,4]")

/* One weight, two Linears. */
#define TWICE                                                                                                                  \
    .nodes = PAIR_NODES("q", "k"),                                                                                             \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "false") "null}}," LINEAR("k", "q.weight",      \
                                                                                                         "false") "null}}",    \
    .tensors = TENSOR("q.weight", "[4,4]")
#define TWICE_RECIPE "'recipe':{'op':'concat','args':['q.weight','q.weight'],'axis':0}"

#define WITH_EMBEDDING                                                                                                         \
    "{'name':'i','op':'placeholder','target':'i'},{'name':'emb','op':'call_module','target':'emb','args':[{'$node':'i'}]},"
#define TIED                                                                                                                   \
    .nodes = WITH_EMBEDDING PAIR_NODES("q", "k"),                                                                              \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "false") "null}}," LINEAR(                      \
        "k", "k.weight", "false") "null}},{'path':'emb','type':'torch.nn.Embedding','config':{'num_embeddings':4,'embedding_"  \
                                  "dim':4},'parameters':{"                                                                     \
                                  "'weight':'q.weight'}}",                                                                     \
    .tensors = TENSOR("q.weight", "[4,4]") "," TENSOR("k.weight", "[4,4]")

/* q.weight is the upper part of a tensor that nobody owns. */
#define PART                                                                                                                   \
    .nodes = PAIR_NODES("q", "k"),                                                                                             \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "false") "null}}," LINEAR("k", "k.weight",      \
                                                                                                         "false") "null}}",    \
    .tensors = TENSOR("big", "[6,4]") ",{'name':'q.weight','dtype':'float32','shape':[4,4],'recipe':{'op':'slice','args':["    \
                                      "'big'],'axis':0,'start':0,'stop':4}}," TENSOR("k.weight", "[4,4]")

static const undo_case cases[] = {
    {"nothing changed", PAIR, MERGE_ALL},
    {"a reader of something else was added",
     PAIR,
     MERGE_ALL,
     {{OUTPUT, READER("sin", "relu")}},
     NULL,
     {{OUTPUT, READER("sin", "relu")}}},
    {"a reader of a slice was added: the Linear has that value again",
     PAIR,
     MERGE_ALL,
     {{OUTPUT, READER("sin", "q")}},
     NULL,
     {{OUTPUT, READER("sin", "q")}}},
    {"an argument was changed that nobody else touches",
     PAIR,
     MERGE_ALL,
     {{"[{'$node':'relu'},{'$node':'tanh'}]", "[{'$node':'tanh'},{'$node':'relu'}]"}},
     NULL,
     {{"[{'$node':'relu'},{'$node':'tanh'}]", "[{'$node':'tanh'},{'$node':'relu'}]"}}},
    {"the graph has another name, and notes",
     PAIR,
     MERGE_ALL,
     {{"'metadata':{}", "'metadata':{'who':'me'}"}},
     NULL,
     {{"'metadata':{}", "'metadata':{'who':'me'}"}}},
    {"nodes were reordered",
     PAIR,
     MERGE_ALL,
     {{"{'name':'relu','op':'call_function','target':'torch.relu','args':[{'$node':'q'}],'kwargs':{},'meta':{}},", ""},
      {"{'name':'k',",
       "{'name':'relu','op':'call_function','target':'torch.relu','args':[{'$node':'q'}],'kwargs':{},'meta':{}},{'name':'k',"}},
     NULL,
     {{"{'name':'relu','op':'call_function','target':'torch.relu','args':[{'$node':'q'}],'kwargs':{},'meta':{}},", ""},
      {"{'name':'k',", "{'name':'relu','op':'call_function','target':'torch.relu','args':[{'$node':'q'}],'kwargs':{},'meta':{}}"
                       ",{'name':'k',"}}},
    {"the merged node has a new reader",
     PAIR,
     MERGE_ALL,
     {{OUTPUT, READER("sin", "q_k_merged")}},
     "new-users node q_k_merged\n"},
    {"the merged node is gone",
     PAIR,
     MERGE_ALL,
     {{"{'name':'q_k_merged','op':'call_module','target':'q-k-merged','args':[{'$node':'x'}],",
       "{'name':'lin','op':'call_module',"
       "'target':'q-k-merged','args':[{"
       "'$node':'x'}],"},
      {"'args':[{'$node':'q_k_merged'},{'$tuple':[{'$ellipsis':true},{'$slice':[0,4,null]}]}]",
       "'args':[{'$node':'lin'},{'$tuple':[{'$ellipsis':true},{'$slice':[0,4,null]}]}]"},
      {"'args':[{'$node':'q_k_merged'},{'$tuple':[{'$ellipsis':true},{'$slice':[4,8,null]}]}]",
       "'args':[{'$node':'lin'},{'$tuple':[{'$ellipsis':true},{'$slice':[4,8,null]}]}]"}},
     "renamed-node node q_k_merged\nchanged-node node q\nchanged-node node k\nnew-users module q-k-merged\n"},
    {"a slice was changed", PAIR, MERGE_ALL, {{"{'$slice':[0,4,null]}", "{'$slice':[0,3,null]}"}}, "changed-node node q\n"},
    {"the merged module was changed",
     PAIR,
     MERGE_ALL,
     {{"'path':'q-k-merged','type':'torch.nn.Linear','config':{",
       "'path':'q-k-merged','type':'torch.nn.Linear','config':{'a':1,"}},
     "changed-module module q-k-merged\n"},
    {"a slice is something else, whose arguments would be those of another slice",
     THREE,
     .passes = "['FuseBiasInLinear','MergeLinears']",
     .undone = "0",
     {{"{'name':'k','op':'call_function','target':'operator.getitem'",
       "{'name':'k','op':'call_function','target':'torch.relu'"}},
     "changed-node node k\n"},
    {"a write between what a merged Linear read and what one of them reads again",
     MIXED,
     .passes = "['MergeLinears','FuseBiasInLinear']",
     .undone = "0",
     {{"{'name':'ones',", WRITE "{'name':'ones',"}},
     "changed-node node x\n"},
    {"a write before both",
     MIXED,
     .passes = "['MergeLinears','FuseBiasInLinear']",
     .undone = "0",
     {{"{'name':'getattr_1',", WRITE "{'name':'getattr_1',"}},
     NULL,
     {{"{'name':'getattr_1',", WRITE "{'name':'getattr_1',"}}},
    {"an exporter sorts the members of objects",
     PAIR,
     MERGE_ALL,
     {{"'weight':'q-k-merged.weight','bias':'q-k-merged.bias'", "'bias':'q-k-merged.bias','weight':'q-k-merged.weight'"}},
     NULL,
     {{NULL, NULL}}},
    {"a module is of another type, and stays as it is, but for what makes its weight",
     LINEAR_NORM,
     {{"'path':'l','type':'torch.nn.Linear'", "'path':'l','type':'my.Block'"}},
     "changed-module module l\n"},
    {"what a pass made is written into",
     LINEAR_NORM,
     {{"{'name':'cat',", "{'name':'w','op':'call_function','target':'mine.kernel','args':[{'$node':'ones'}]},{'name':'cat',"}},
     "changed-node node ones\n"},
    {"what the merged node reads was renamed",
     PAIR,
     MERGE_ALL,
     {{"{'name':'x','op'", "{'name':'y','op'"}, {"[{'$node':'x'}]", "[{'$node':'y'}]"}},
     "changed-node node q_k_merged\nrenamed-node node x\n"},
    {"a convolution that took in its BatchNorm has a new reader",
     NORM,
     {{OUTPUT, READER("sin", "conv")}},
     "new-users node conv\n"},
    {"what the BatchNorm's reader computes was changed",
     NORM,
     {{"torch.relu", "torch.tanh"}},
     NULL,
     {{"torch.relu", "torch.tanh"}}},
    {"the merged weight was trained: the originals are cut out of it",
     PAIR,
     MERGE_ALL,
     {{WEIGHT_RECIPE, DIGEST_A}, {TENSOR_OUT("q.weight", "[4,4]"), ""}, {TENSOR_OUT("k.weight", "[4,4]"), ""}},
     NULL,
     {{WHOLE_TENSOR("q.weight", "[4,4]"), MERGED_TENSOR "," CUT("q.weight", "[4,4]", "q-k-merged.weight", "0", "4")},
      {WHOLE_TENSOR("k.weight", "[4,4]"), CUT("k.weight", "[4,4]", "q-k-merged.weight", "4", "8")}}},
    {"the same, and the exporter calls the tensor something else",
     PAIR,
     MERGE_ALL,
     {{WEIGHT_RECIPE, DIGEST_A},
      {"{'name':'q-k-merged.weight'", "{'name':'trained'"},
      {"'weight':'q-k-merged.weight'", "'weight':'trained'"},
      {TENSOR_OUT("q.weight", "[4,4]"), ""},
      {TENSOR_OUT("k.weight", "[4,4]"), ""}},
     NULL,
     {{WHOLE_TENSOR("q.weight", "[4,4]"), "{'name':'trained','dtype':'float32','shape':[8,4],'requires_grad':true," DIGEST_A
                                          "}," CUT("q.weight", "[4,4]", "trained", "0", "4")},
      {WHOLE_TENSOR("k.weight", "[4,4]"), CUT("k.weight", "[4,4]", "trained", "4", "8")}}},
    {"a tensor is called something else",
     PAIR,
     MERGE_ALL,
     {{"{'name':'q-k-merged.weight'", "{'name':'merged'"}, {"'weight':'q-k-merged.weight'", "'weight':'merged'"}},
     NULL,
     {{NULL, NULL}}},
    {"the merged weight was frozen",
     PAIR,
     MERGE_ALL,
     {{WEIGHT_RECIPE, "'requires_grad':false," WEIGHT_RECIPE}},
     "changed-tensor tensor q-k-merged.weight\n"},
    {"the filler of a merged bias cannot be seen",
     MIXED,
     MERGE_ALL,
     {{BIAS_RECIPE, DIGEST_A}, {TENSOR_OUT("q.bias", "[4]"), ""}},
     "constant-changed tensor q-k-merged.bias\n"},
    {"the filler of a merged bias changed",
     MIXED,
     MERGE_ALL,
     {{BIAS_RECIPE, "'data':'AACAPwAAAEAAAEBAAACAQAAAAAAAAAAAAAAAAAAAoEA='"}, {TENSOR_OUT("q.bias", "[4]"), ""}},
     "constant-changed tensor q-k-merged.bias\n"},
    {"the filler of a merged bias is what it was",
     MIXED,
     MERGE_ALL,
     {{BIAS_RECIPE, "'data':'AACAPwAAAEAAAEBAAACAQAAAAAAAAAAAAAAAAAAAAAA='"}, {TENSOR_OUT("q.bias", "[4]"), ""}},
     NULL,
     {{WHOLE_TENSOR("q.bias", "[4]"),
       "{'name':'q-k-merged.bias','dtype':'float32','shape':[8],'requires_grad':true,'data':'"
       "AACAPwAAAEAAAEBAAACAQAAAAAAAAAAAAAAAAAAAAAA='}," CUT("q.bias", "[4]", "q-k-merged.bias", "0", "4")}}},
    {"what stands between originals and a weight was trained: it is carried back, too",
     PAIR,
     .passes = "['MergeLinears','FuseBiasInLinear']",
     .undone = "01",
     {{"'recipe':{'op':'concat','args':['q.bias','k.bias'],'axis':0}", DIGEST_A},
      {TENSOR_OUT("q.bias", "[4]"), ""},
      {"," TENSOR_LAST("k.bias", "[4]"), ""}},
     NULL,
     {{WHOLE_TENSOR("q.bias", "[4]"), "{'name':'q-k-merged.bias','dtype':'float32','shape':[8],'requires_grad':true," DIGEST_A
                                      "}," CUT("q.bias", "[4]", "q-k-merged.bias", "0", "4")},
      {WHOLE_TENSOR("k.bias", "[4]"), CUT("k.bias", "[4]", "q-k-merged.bias", "4", "8")}}},
    {"two Linears of one weight: it cannot be seen whether they differ now",
     TWICE,
     MERGE_ALL,
     {{TWICE_RECIPE, DIGEST_A}, {TENSOR_OUT("q.weight", "[4,4]"), ""}},
     "copies-diverged tensor q.weight\n"},
    {"two Linears of one weight: they differ now",
     TWICE,
     MERGE_ALL,
     {{TWICE_RECIPE, "'data':'"
                     "AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAADAQAAA4EAAAABBAAAQQQAAIEEAADBBAABAQQAAUEEAAGBBAABwQQAAgEEAAIhBAACQQQAAm"
                     "EEAAKBBAACoQQAAsEEAALhBAADAQQAAyEEAANBBAADYQQAA4EEAAOhBAADwQQAA+EE='"},
      {TENSOR_OUT("q.weight", "[4,4]"), ""}},
     "copies-diverged tensor q.weight\n"},
    {"two Linears of one weight: both were trained alike",
     TWICE,
     MERGE_ALL,
     {{TWICE_RECIPE, "'data':'AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAADAQAAA4EAAAABBAAAQQQAAIEEAADBBAABAQQAAUEEAAGBBAABwQQAAAAAAAIA/"
                     "AAAAQAAAQEAAAIBAAACgQAAAwEAAAOBAAAAAQQAAEEEAACBBAAAwQQAAQEEAAFBBAABgQQAAcEE='"},
      {TENSOR_OUT("q.weight", "[4,4]"), ""}},
     NULL,
     {{WHOLE_TENSOR("q.weight", "[4,4]"),
       "{'name':'q-k-merged.weight','dtype':'float32','shape':[8,4],'requires_grad':true,'data':'"
       "AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAADAQAAA4EAAAABBAAAQQQAAIEEAADBBAABAQQAAUEEAAGBBAABwQQAAAAAAAIA/"
       "AAAAQAAAQEAAAIBAAACgQAAAwEAAAOBAAAAAQQAAEEEAACBBAAAwQQAAQEEAAFBBAABgQQAAcEE='}," CUT("q.weight", "[4,4]",
                                                                                             "q-k-merged.weight", "0", "4")}}},
    {"the weight is an embedding's too",
     TIED,
     MERGE_ALL,
     {{WEIGHT_RECIPE, DIGEST_A}, {"," TENSOR_LAST("k.weight", "[4,4]"), ""}},
     "tied tensor q.weight\n"},
    {"the weight was a part of a larger tensor",
     PART,
     MERGE_ALL,
     {{WEIGHT_RECIPE, DIGEST_A},
      {"{'name':'q.weight','dtype':'float32','shape':[4,4],'requires_grad':true,'recipe':{'op':'slice','args':['big'],'axis':0,"
       "'start':0,'stop':4}},",
       ""},
      {"," TENSOR_LAST("k.weight", "[4,4]"), ""},
      {"{'name':'big','dtype':'float32','shape':[6,4]},", ""}},
     "partly-moved tensor big\n"},
    {"a folded weight was trained",
     NORM,
     {{"{'op':'mul','args':['conv.weight'", "{'op':'add','args':['conv.weight'"}},
     "computed tensor conv.weight@365bfe60\n"},
};

static void check_case(const undo_case *c) {
    prepared p = prepare(c);
    fb_undo_plan plan = plan_of(&p);
    fb_graph *out = NULL;
    bool is_exact = false;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    fb_status status = fb_undo(&plan, &out, &is_exact, &conflicts, &error);
    char *found = conflicts_text(&conflicts), *is = out ? text_of(out) : NULL;
    if (c->conflicts) {
        ck_assert_msg(status == FB_CONFLICT, "%s: no conflict, but %s %s", c->name, error.message, is ? is : "");
        ck_assert_msg(strcmp(found, c->conflicts) == 0, "%s: found\n%s", c->name, found);
    } else {
        ck_assert_msg(status == FB_OK, "%s: %s\n%s", c->name, error.message, found);
        fb_graph *expected = changed_graph(p.replay.result, c->expected);
        char *should = text_of(expected);
        ck_assert_msg(strcmp(is, should) == 0, "%s:\n%s\nshould be\n%s", c->name, is, should);
        ck_assert_int_eq(is_exact, c->expected[0].from == NULL);
        fb_graph_free(expected);
        free(should);
    }
    free(found);
    free(is);
    fb_conflicts_free(&conflicts);
    fb_graph_free(out);
    forget(&p);
}

START_TEST(test_case) {
    check_case(&cases[_i]);
}
END_TEST

START_TEST(test_no_memory) {
    prepared p = prepare(&cases[_i]);
    fb_undo_plan plan = plan_of(&p);
    for (long k = 0;; k++) {
        fb_graph *out = NULL;
        bool is_exact = false;
        fb_conflicts conflicts = {0};
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = fb_undo(&plan, &out, &is_exact, &conflicts, &error);
        bool has_failed = chaos_off();
        if (has_failed) ck_assert_int_eq(status, FB_NO_MEMORY);
        if (status) ck_assert_ptr_null(out);
        fb_graph_free(out);
        fb_conflicts_free(&conflicts);
        if (!has_failed) break;
    }
    forget(&p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("undo");
    TCase *merges = tcase_create("merges");
    int count = (int)(sizeof cases / sizeof *cases);
    tcase_set_timeout(merges, 300);
    tcase_add_loop_test(merges, test_case, 0, count);
    tcase_add_loop_test(merges, test_no_memory, 0, count);
    suite_add_tcase(suite, merges);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
