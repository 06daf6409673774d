/* Undoing on small graphs that were changed since: for each what merges, or which conflicts there are. */
#ifndef FB_TESTS_UNDO_EXAMPLE_H
#define FB_TESTS_UNDO_EXAMPLE_H

#include <stddef.h>

/* A change that a client makes: a part of the canonical document (which is there once) becomes another. All texts are written
 * with ' for ". */
typedef struct change {
    const char *from, *to;
} change;

enum { CHANGES_MAX = 6 };

typedef struct undo_example {
    const char *name;
    const char *nodes, *modules, *tensors; /* the source */
    const char *passes;                    /* all of it */
    const char *undone;                    /* positions: "02" */
    change changes[CHANGES_MAX];           /* made to the result */
    const char *conflicts;                 /* "code kind name\n" for each, or NULL: it merges */
    change expected[CHANGES_MAX];          /* … into the replay with these changes */
} undo_example;

/* main() of a program that checks each example, with memory and without. */
int undo_examples_main(const char *name, const undo_example *examples, size_t count);

/* ---- sources ------------------------------------------------------------------------------------------------------------- */

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
#define NORM NORM_READ_BY("'target':'torch.relu','args':[{'$node':'bn'}]")
#define NORM_READ_BY(call)                                                                                                     \
    .nodes = "{'name':'x','op':'placeholder','target':'x','meta':{'shape':[1,2,4,4],'dtype':'float32'}},"                      \
             "{'name':'conv','op':'call_module','target':'conv','args':[{'$node':'x'}]},"                                      \
             "{'name':'bn','op':'call_module','target':'bn','args':[{'$node':'conv'}]},"                                       \
             "{'name':'relu','op':'call_function'," call "},"                                                                  \
             "{'name':'output','op':'output','target':'output','args':[{'$node':'relu'}]}",                                    \
    .modules = "{'path':'','type':'torch.nn.Module'},"                                                                         \
               "{'path':'conv','type':'torch.nn.Conv2d','config':{'in_channels':2,'out_channels':2,'kernel_size':1,"           \
               "'bias':true},'parameters':{'weight':'conv.weight','bias':'conv.bias'}},"                                       \
               "{'path':'bn','type':'torch.nn.BatchNorm2d','config':{'num_features':2},'parameters':{'weight':'bn.weight',"    \
               "'bias':'bn.bias'},'buffers':{'running_mean':'bn.running_mean','running_var':'bn.running_var'}}",               \
    .tensors = TENSOR("conv.weight", "[2,2,1,1]") "," TENSOR("conv.bias", "[2]") "," TENSOR("bn.weight", "[2]") "," TENSOR(    \
        "bn.bias", "[2]") "," TENSOR("bn.running_mean", "[2]") "," TENSOR("bn.running_var", "[2]"),                            \
    .passes = "['FuseBatchNorm2dInConv2d']", .undone = "0"

/* Only the first of the two has a bias. */
#define MIXED                                                                                                                  \
    .nodes = PAIR_NODES("q", "k"),                                                                                             \
    .modules = "{'path':'','type':'torch.nn.Module'}," LINEAR("q", "q.weight", "true") "'q.bias'}}," LINEAR("k", "k.weight",   \
                                                                                                            "false") "null}}", \
    .tensors = TENSOR("q.weight", "[4,4]") "," TENSOR("q.bias", "[4]") "," TENSOR("k.weight", "[4,4]")

#endif
