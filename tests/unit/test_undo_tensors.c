/* Undoing on graphs whose tensors were changed since: what is carried back, and each conflict. */
#include "tests/unit/undo_example.h"

#define DIGEST_A "'digest':'sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
#define WEIGHT_RECIPE "'recipe':{'op':'concat','args':['q.weight','k.weight'],'axis':0}"
#define TENSOR_OUT(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape ",'requires_grad':true},"
#define WHOLE_TENSOR(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape "}"
#define CUT(name, shape, from, start, stop)                                                                                    \
    "{'name':'" name "','dtype':'float32','shape':" shape ",'recipe':{'op':'slice','args':['" from                             \
    "'],'axis':0,'start':" start ",'stop':" stop "}}"

#define MERGED_TENSOR "{'name':'q-k-merged.weight','dtype':'float32','shape':[8,4],'requires_grad':true," DIGEST_A "}"
#define TENSOR_LAST(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape ",'requires_grad':true}"
#define BIAS_RECIPE                                                                                                            \
    "'recipe':{'op':'concat','args':['q.bias',{'op':'full','args':[],'shape':[4],'value':{'$float':'0.0'}}],'axis':0}"

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

/* A Linear and its BatchNorm, and another Linear with the same weight. */
#define SHARED                                                                                                                 \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'l','op':'call_module','target':'l','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}},"   \
             "{'name':'bn','op':'call_module','target':'bn','args':[{'$node':'l'}]}," CALL_M                                   \
             "{'name':'output','op':'output','target':'output','args':[{'$node':'bn'}]}",                                      \
    .modules = "{'path':'','type':'torch.nn.Module'}," MODULE_M LINEAR(                                                        \
        "l", "w", "false") "null}},"                                                                                           \
                           "{'path':'bn','type':'torch.nn.BatchNorm1d','config':{'num_features':4,'affine':false},"            \
                           "'parameters':{'weight':null,'bias':null},'buffers':{'running_mean':'bn.running_mean',"             \
                           "'running_var':'bn.running_var'}}",                                                                 \
    .tensors = TENSOR("w", "[4,4]") "," TENSOR("bn.running_mean", "[4]") "," TENSOR("bn.running_var", "[4]"),                  \
    .passes = "['FuseBatchNorm1dInLinear']", .undone = "0"
/* Two Linears of whose weights the bytes are known. */
#define DIGEST_B "'digest':'sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'"
#define TOLD                                                                                                                   \
    .nodes = PAIR_NODES("q", "k"),                                                                                             \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "false") "null}}," LINEAR("k", "k.weight",      \
                                                                                                         "false") "null}}",    \
    .tensors = "{'name':'q.weight','dtype':'float32','shape':[4,4]," DIGEST_A                                                  \
               "},{'name':'k.weight','dtype':'float32','shape':[4,4]," DIGEST_B "}"

#define CALL_M "{'name':'m','op':'call_module','target':'m','args':[{'$node':'x'}],'kwargs':{},'meta':{}},"
#define MODULE_M                                                                                                               \
    "{'path':'m','type':'torch.nn.Linear','config':{'bias':false,'in_features':4,'out_features':4},'parameters':{"             \
    "'weight':'w','bias':null},'buffers':{},'training':false},"

/* A subtraction that goes into the Linear behind it, whose bias is made from its weight; the bytes are known. */
#define SHIFTED                                                                                                                \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,1],'dtype':'float32'}},"                          \
             "{'name':'sub','op':'call_function','target':'operator.sub','args':[{'$node':'x'},0.5],'meta':{'shape':[2,1],"    \
             "'dtype':'float32'}},"                                                                                            \
             "{'name':'l','op':'call_module','target':'l','args':[{'$node':'sub'}],'meta':{'shape':[2,1],'dtype':'float32'}}," \
             "{'name':'output','op':'output','target':'output','args':[{'$node':'l'}]}",                                       \
    .modules = "{'path':'','type':'torch.nn.Module'},{'path':'l','type':'torch.nn.Linear','config':{'in_features':1,"          \
               "'out_features':1,'bias':false},'parameters':{'weight':'l.weight','bias':null}}",                               \
    .tensors = "{'name':'l.weight','dtype':'float32','shape':[1,1]," SHIFTED_WEIGHT "}", .passes = "['FoldScaleIntoLinear']",  \
    .undone = "0"
#define SHIFTED_WEIGHT "'data':'AAAAQA=='" /* 2 */
#define SHIFTED_BIAS                                                                                                           \
    "'recipe':{'op':'matmul','args':['l.weight',{'op':'mul','args':[{'op':'full','args':[],'shape':[1],'value':{'$float':"     \
    "'1.0'}},{'op':'neg','args':[{'op':'full','args':[],'shape':[],'value':0.5}]}]}]}"
#define TRAINED_WEIGHT "'data':'AABAQA=='" /* 3 */
#define BIAS_IN_BYTES "'data':'AACAvw=='"  /* 2 · -0.5 */

static const undo_example cases[] = {
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
    {"an original is called what another one was called",
     TOLD,
     MERGE_ALL,
     {{"{'name':'q.weight'", "{'name':'t'"},
      {"{'name':'k.weight'", "{'name':'q.weight'"},
      {"['q.weight','k.weight']", "['t','q.weight']"}},
     NULL,
     {{"{'name':'q.weight'", "{'name':'t'"},
      {"{'name':'k.weight'", "{'name':'q.weight'"},
      {"{'weight':'q.weight'", "{'weight':'t'"},
      {"{'weight':'k.weight'", "{'weight':'q.weight'"}}},
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
    {"the other owner of a folded weight is gone: it is trained as it was",
     SHARED,
     {{CALL_M, ""}, {MODULE_M, ""}},
     NULL,
     {{CALL_M, ""}, {MODULE_M, ""}}},
    {"a folded weight was trained",
     NORM,
     {{"{'op':'mul','args':['conv.weight'", "{'op':'add','args':['conv.weight'"}},
     "computed tensor conv.weight@07bd9dd7\n"},
    {"the bias that was made has its bytes now, and the weight that it was made from was trained",
     SHIFTED,
     {{SHIFTED_WEIGHT, TRAINED_WEIGHT}, {SHIFTED_BIAS, BIAS_IN_BYTES}},
     "computed tensor l.bias\n"},
    {"the bias has its bytes now, which are those that its recipe gives", SHIFTED, {{SHIFTED_BIAS, BIAS_IN_BYTES}}},
    {"the bias follows the weight that was trained",
     SHIFTED,
     {{SHIFTED_WEIGHT, TRAINED_WEIGHT}},
     NULL,
     {{SHIFTED_WEIGHT, TRAINED_WEIGHT}}},
};

int main(void) {
    return undo_examples_main("undo of tensors", cases, sizeof cases / sizeof *cases);
}
