/* Undoing on graphs whose nodes and modules were changed since: what merges, and each conflict. */
#include "tests/unit/undo_example.h"

/* A Linear, its BatchNorm, and a reader. */
#define LINEAR_NORM LINEAR_NORM_OF("['FuseBatchNorm1dInLinear','FuseBiasInLinear']")
#define LINEAR_NORM_OF(list)                                                                                                   \
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
    .passes = list, .undone = "0"

/* Two Linears that one value feeds, and the BatchNorm of the first. */
#define PAIR_AND_NORM                                                                                                          \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'q','op':'call_module','target':'q','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}},"   \
             "{'name':'k','op':'call_module','target':'k','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}},"   \
             "{'name':'bn','op':'call_module','target':'bn','args':[{'$node':'q'}]},"                                          \
             "{'name':'output','op':'output','target':'output','args':[[{'$node':'bn'},{'$node':'k'}]]}",                      \
    .modules = PAIR_MODULES ",{'path':'bn','type':'torch.nn.BatchNorm1d','config':{'num_features':4,'affine':false},"          \
                            "'parameters':{'weight':null,'bias':null},'buffers':{'running_mean':'bn.running_mean',"            \
                            "'running_var':'bn.running_var'}}",                                                                \
    .tensors = PAIR_TENSORS "," TENSOR("bn.running_mean", "[4]") "," TENSOR("bn.running_var", "[4]")

/* A BatchNorm and the Linear that it can be taken into, and another Linear of what the BatchNorm reads. */
#define NORM_FIRST                                                                                                             \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'bn','op':'call_module','target':'bn','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}}," \
             "{'name':'q','op':'call_module','target':'q','args':[{'$node':'bn'}]},"                                           \
             "{'name':'k','op':'call_module','target':'k','args':[{'$node':'x'}]},"                                            \
             "{'name':'output','op':'output','target':'output','args':[[{'$node':'q'},{'$node':'k'}]]}",                       \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "false") "null}}," LINEAR(                      \
        "k", "k.weight", "true") "'k.bias'}},{'path':'bn','type':'torch.nn.BatchNorm1d','config':{'num_features':4,"           \
                                 "'affine':false},'parameters':{'weight':null,'bias':null},'buffers':{'running_mean':"         \
                                 "'bn.running_mean','running_var':'bn.running_var'}}",                                         \
    .tensors = TENSOR("q.weight", "[4,4]") "," TENSOR("k.weight", "[4,4]") "," TENSOR("k.bias", "[4]") "," TENSOR(             \
        "bn.running_mean", "[4]") "," TENSOR("bn.running_var", "[4]"),                                                         \
    .passes = "['FuseBatchNorm1dInLinear','FuseBiasInLinear']", .undone = "0"

/* What FuseBiasInLinear makes of k(x) there. */
#define FUNCTION(name, target, args, kwargs, meta)                                                                             \
    "{'name':'" name "','op':'call_function','target':'" target "','args':[" args "],'kwargs':{" kwargs "},'meta':{" meta "}}" \
    ","
#define FUSED_K(shape, sizes, more, device, ones, cat)                                                                         \
    FUNCTION(shape, "builtins.getattr", "{'$node':'x'},'shape'", "", "")                                                       \
    FUNCTION(sizes, "operator.getitem", "{'$node':'" shape "'},{'$slice':[null,-1,null]}", "", "")                             \
    FUNCTION(more, "operator.add", "{'$node':'" sizes "'},{'$tuple':[1]}", "", "")                                             \
    FUNCTION(device, "builtins.getattr", "{'$node':'x'},'device'", "", "")                                                     \
    FUNCTION(ones, "torch.ones", "{'$node':'" more "'}", "'device':{'$node':'" device "'}", "'dtype':'float32','shape':[2,1]") \
    FUNCTION(cat, "torch.cat", "[{'$node':'x'},{'$node':'" ones "'}]", "'dim':-1", "'dtype':'float32','shape':[2,5]")          \
    "{'name':'k','op':'call_module','target':'k','args':[{'$node':'" cat "'}]"

#define OUTPUT "{'name':'output','op':'output'"
#define READER(name, input)                                                                                                    \
    "{'name':'" name "','op':'call_function','target':'torch.sin','args':[{'$node':'" input "'}]}," OUTPUT
#define WRITE "{'name':'w','op':'call_method','target':'relu_','args':[{'$node':'x'}],'kwargs':{},'meta':{}},"

/* A call that nobody reads, and an in-place one beside it. */
#define TURN(name)                                                                                                             \
    "{'name':'" name "','op':'call_method','target':'transpose_','args':[{'$node':'x'},0,1],'kwargs':{},'meta':{}},"
#define NEG "{'name':'neg','op':'call_function','target':'torch.neg','args':[{'$node':'x'}],'kwargs':{},'meta':{}},"
#define RELU "{'name':'relu','op':'call_function','target':'torch.relu','args':[{'$node':'x'}],'kwargs':{},'meta':{}},"
#define DEAD(calls)                                                                                                            \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}}," calls OUTPUT             \
             ",'target':'output','args':[{'$node':'relu'}]}",                                                                  \
    .modules = "{'path':'','type':'torch.nn.Module'}", .tensors = "", .passes = "['EliminateDeadCode']", .undone = "0"
/* A shape that is known. */
#define SHAPE(z)                                                                                                               \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'z','op':'placeholder','target':'z','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'size','op':'call_function','target':'builtins.getattr','args':[{'$node':'x'},'shape']},"                \
             "{'name':'getitem','op':'call_function','target':'operator.getitem','args':[{'$node':'size'},0]},"                \
             "{'name':'view','op':'call_method','target':'reshape','args':[{'$node':'" z "'},{'$node':'getitem'},-1],"         \
             "'meta':{'shape':[2,4],'dtype':'float32'}}," OUTPUT ",'target':'output','args':[{'$node':'view'}]}",              \
    .modules = "{'path':'','type':'torch.nn.Module'}", .tensors = "", .passes = "['FoldShapes']", .undone = "0"

/* A call that is made twice, and a view of the second one. */
#define TWICE(between, outputs)                                                                                                \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'a','op':'call_function','target':'torch.relu','args':[{'$node':'x'}]}," between                         \
             "{'name':'b','op':'call_function','target':'torch.relu','args':[{'$node':'x'}]},"                                 \
             "{'name':'v','op':'call_method','target':'view','args':[{'$node':'b'},-1]},"                                      \
             "{'name':'t','op':'call_function','target':'torch.tanh','args':[{'$node':'v'}]}," OUTPUT                          \
             ",'target':'output','args':[[" outputs "]]}",                                                                     \
    .modules = "{'path':'','type':'torch.nn.Module'}", .tensors = "", .passes = "['EliminateCommonSubexpressions']",           \
    .undone = "0"
#define SIN "{'name':'s','op':'call_function','target':'torch.sin','args':[{'$node':'a'}]},"
#define ADD(to) "{'name':'w','op':'call_method','target':'add_','args':[{'$node':'" to "'},1]},"

/* Three Linears, of which only the first has a bias. */
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

/* A LayerNorm, whose weight and bias can be taken into the Linear that reads it. */
#define LAYER_NORM                                                                                                             \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[2,4],'dtype':'float32'}},"                          \
             "{'name':'n','op':'call_module','target':'n','args':[{'$node':'x'}],'meta':{'shape':[2,4],'dtype':'float32'}},"   \
             "{'name':'q','op':'call_module','target':'q','args':[{'$node':'n'}]},"                                            \
             "{'name':'output','op':'output','target':'output','args':[{'$node':'q'}]}",                                       \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR(                                                                 \
        "q", "q.weight",                                                                                                       \
        "true") "'q.bias'}},"                                                                                                  \
                "{'path':'n','type':'torch.nn.LayerNorm','config':{'normalized_shape':[4],'elementwise_affine':true},"         \
                "'parameters':{'weight':'n.weight','bias':'n.bias'}}",                                                         \
    .tensors =                                                                                                                 \
        TENSOR("q.weight", "[4,4]") "," TENSOR("q.bias", "[4]") "," TENSOR("n.weight", "[4]") "," TENSOR("n.bias", "[4]"),     \
    .passes = "['FoldNormIntoLinear']", .undone = "0"

static const undo_example cases[] = {
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
    {"a dead call, and the write behind it was renamed",
     DEAD(NEG TURN("t") RELU),
     {{"'t'", "'turned'"}},
     "changed-node node x\n"},
    {"a dead call, and the write before it was renamed",
     DEAD(TURN("t") NEG RELU),
     {{"'t'", "'turned'"}},
     NULL,
     {{"'t'", "'turned'"}}},
    {"a dead call, and the write before it was moved behind what follows",
     DEAD(TURN("t") NEG RELU),
     {{TURN("t") RELU, RELU TURN("t")}},
     "changed-node node x\n"},
    {"a dead call, and the write before it is gone", DEAD(TURN("t") NEG RELU), {{TURN("t"), ""}}, "changed-node node x\n"},
    {"a dead call, and the write before it is another one",
     DEAD(TURN("t") NEG RELU),
     {{"{'$node':'x'},0,1]", "{'$node':'x'},1,1]"}},
     "changed-node node x\n"},
    {"a dead call, and a new write before it", DEAD(NEG RELU), {{RELU, TURN("t") RELU}}, "changed-node node x\n"},
    {"a dead call, and a new write that lies behind it",
     DEAD(NEG RELU),
     {{OUTPUT, TURN("t") OUTPUT}},
     NULL,
     {{OUTPUT, TURN("t") OUTPUT}}},
    {"a dead call, and a write before the one behind it",
     DEAD(NEG TURN("t") RELU),
     {{RELU, TURN("u") RELU}},
     NULL,
     {{RELU, TURN("u") RELU}}},
    {"a dead call of a dead call, and the write behind them was renamed",
     DEAD(NEG "{'name':'sin','op':'call_function','target':'torch.sin','args':[{'$node':'neg'}]}," TURN("t") RELU),
     {{"'t'", "'turned'"}},
     "changed-node node x\n"},
    {"a dead call of something else",
     DEAD("{'name':'y','op':'placeholder','target':'y'}," NEG RELU TURN("t")),
     {{"'t'", "'turned'"}},
     NULL,
     {{"'t'", "'turned'"}}},
    {"a shape that was folded, and a new write",
     SHAPE("z"),
     {{"{'name':'view'", TURN("t") "{'name':'view'"}},
     "changed-node node x\n"},
    {"a folded shape of a tensor that its reader reads as well, and a new write",
     SHAPE("x"),
     {{"{'name':'view'", TURN("t") "{'name':'view'"}},
     "changed-node node x\n"},
    {"a write into one of two values that were one, which an output gives",
     TWICE("", "{'$node':'a'},{'$node':'t'}"),
     {{OUTPUT, ADD("v") OUTPUT}},
     "changed-node node output\n"},
    {"a write into one of two values that were one, and the other is read before",
     TWICE(SIN, "{'$node':'s'},{'$node':'t'},{'$node':'v'}"),
     {{OUTPUT, ADD("v") OUTPUT}},
     NULL,
     {{OUTPUT, ADD("v") OUTPUT}}},
    {"a write into a slice of what was merged",
     PAIR,
     MERGE_ALL,
     {{OUTPUT, ADD("k") OUTPUT}},
     NULL,
     {{OUTPUT, ADD("k") OUTPUT}}},
    {"an exporter sorts the members of objects",
     PAIR,
     MERGE_ALL,
     {{"'weight':'q-k-merged.weight','bias':'q-k-merged.bias'", "'bias':'q-k-merged.bias','weight':'q-k-merged.weight'"}},
     NULL,
     {{NULL, NULL}}},
    {"a module is of another type, and stays as it is, but for what makes its weight",
     LINEAR_NORM,
     {{"'path':'l','type':'torch.nn.Linear'", "'path':'l','type':'my.Block'"}},
     "changed-module module l\nchanged-node node cat\n"},
    {"what a pass made is written into",
     LINEAR_NORM,
     {{"{'name':'cat',", "{'name':'w','op':'call_function','target':'mine.kernel','args':[{'$node':'ones'}]},{'name':'cat',"}},
     "changed-node node ones\n"},
    {"what a pass made is changed on its way to its reader",
     LINEAR_NORM_OF("['FuseBiasInLinear','FuseBatchNorm1dInLinear','FuseBiasInLinear']"),
     {{"{'name':'l',", "{'name':'tanh','op':'call_function','target':'torch.tanh','args':[{'$node':'cat'}]},{'name':'l',"},
      {"'target':'l','args':[{'$node':'cat'}]", "'target':'l','args':[{'$node':'tanh'}]"}},
     "changed-node node l\n"},
    {"what reads a part of the merged node that undoing leaves alone reads all of it since",
     PAIR_AND_NORM,
     .passes = "['FuseBatchNorm1dInLinear','MergeLinears']",
     .undone = "0",
     {{"{'$slice':[4,8,null]}", "{'$slice':[0,8,null]}"}},
     "changed-node node k\n"},
    {"two rows of ones are made alike, and the one that stays has a new reader",
     NORM_FIRST,
     {{OUTPUT, READER("sin", "cat_1")}},
     NULL,
     {{FUSED_K("getattr_1", "getitem", "add", "getattr_2", "ones", "cat"),
       FUSED_K("getattr_3", "getitem_1", "add_1", "getattr_4", "ones_1", "cat_1")},
      {OUTPUT, READER("sin", "cat_1")}}},
    {"what the merged node reads was renamed",
     PAIR,
     MERGE_ALL,
     {{"{'name':'x','op'", "{'name':'y','op'"}, {"[{'$node':'x'}]", "[{'$node':'y'}]"}},
     "changed-node node q_k_merged\nrenamed-node node x\n"},
    {"a convolution that took in its BatchNorm has a new reader",
     NORM,
     {{OUTPUT, READER("sin", "conv")}},
     "new-users node conv\n"},
    {"who reads such a convolution reads it twice since",
     NORM_READ_BY("'target':'operator.add','args':[{'$node':'bn'},2]"),
     {{"[{'$node':'conv'},2]", "[{'$node':'conv'},{'$node':'conv'}]"}},
     "new-users node conv\n"},
    {"who reads such a convolution reads something else beside it since",
     NORM_READ_BY("'target':'operator.add','args':[{'$node':'bn'},2]"),
     {{"[{'$node':'conv'},2]", "[{'$node':'conv'},{'$node':'x'}]"}},
     NULL,
     {{"[{'$node':'bn'},2]", "[{'$node':'bn'},{'$node':'x'}]"}}},
    {"a LayerNorm whose weight a Linear took in has a new reader",
     LAYER_NORM,
     {{OUTPUT, READER("sin", "n")}},
     "new-users node n\n"},
    {"what a LayerNorm reads has a new reader",
     LAYER_NORM,
     {{OUTPUT, READER("sin", "x")}},
     NULL,
     {{OUTPUT, READER("sin", "x")}}},
    {"what the BatchNorm's reader computes was changed",
     NORM,
     {{"torch.relu", "torch.tanh"}},
     NULL,
     {{"torch.relu", "torch.tanh"}}},
};

int main(void) {
    return undo_examples_main("undo", cases, sizeof cases / sizeof *cases);
}
