/* Module configs against parameters and buffers. That modules of PyTorch itself pass, test_infer and the fixtures show. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/quoted.h"
#include "tests/unit/run_tests.h"

#define LINEAR(config, bias) "torch.nn.Linear", config, "'weight':'w34','bias':" bias, ""
#define CONV(config) "torch.nn.Conv2d", config, "'weight':'w6355','bias':'b6'", ""
#define NORM(config, parameters, buffers) "torch.nn.BatchNorm2d", config, parameters, buffers
#define BAD(place) "config-contradicts-tensor /modules/1/" place "\n"

static const struct {
    const char *type, *config, *parameters, *buffers, *errors;
} modules[] = {
    {LINEAR("", "'b3'"), ""},
    {LINEAR("'in_features':4,'out_features':3,'bias':true", "'b3'"), ""},
    {LINEAR("'in_features':5,'out_features':3", "'b3'"), BAD("parameters/weight")},
    {LINEAR("'in_features':4,'out_features':2", "'b3'"), BAD("parameters/bias") BAD("parameters/weight")},
    {LINEAR("'in_features':-4", "'b3'"), BAD("config/in_features")},
    {LINEAR("'in_features':4.5", "'b3'"), BAD("config/in_features")},
    {LINEAR("'in_features':'4'", "'b3'"), BAD("config/in_features")},
    {LINEAR("'in_features':true", "'b3'"), BAD("config/in_features")},
    {LINEAR("'in_features':{'$opaque':'s0'}", "'b3'"), ""},
    {LINEAR("'bias':false", "'b3'"), BAD("parameters/bias")},
    {LINEAR("'bias':false", "null"), ""},
    {LINEAR("'bias':true", "null"), BAD("parameters/bias")},
    {LINEAR("", "null"), BAD("parameters/bias")},
    {LINEAR("'bias':1", "null"), BAD("config/bias")},
    {LINEAR("", "'b6'"), ""}, /* the config does not say how many features there are */
    {LINEAR("", "'w34'"), BAD("parameters/bias")},
    {LINEAR("'in_features':4,'unknown':-1", "'b3'"), ""},
    {"torch.nn.Linear", "'bias':false", "'weight_g':'b3','weight_v':'w34'", "", ""},
    {"torch.nn.Linear", "'bias':false", "'other':'w34'", "", BAD("parameters")},
    {"my.Linear", "'in_features':99", "'weight':'w34'", "", ""},
    {CONV("'in_channels':6,'out_channels':6,'groups':2,'kernel_size':5"), ""},
    {CONV("'in_channels':6,'out_channels':6,'groups':2,'kernel_size':{'$tuple':[5,5]}"), ""},
    {CONV("'in_channels':6,'out_channels':6,'groups':2,'kernel_size':{'$tuple':[5,3]}"), BAD("parameters/weight")},
    {CONV("'in_channels':6,'out_channels':6,'kernel_size':5"), BAD("parameters/weight")},
    {CONV("'in_channels':3,'out_channels':6,'groups':2"), BAD("config/in_channels")},
    {CONV("'in_channels':3,'groups':0"), BAD("config/groups")},
    {CONV("'in_channels':3,'stride':0"), BAD("config/stride")},
    {CONV("'in_channels':3,'stride':{'$tuple':[1,0]},'dilation':-1"), BAD("config/dilation") BAD("config/stride")},
    {CONV("'in_channels':3,'padding':'same'"), ""},
    {CONV("'in_channels':3,'padding':-1"), BAD("config/padding")},
    {CONV("'kernel_size':{'$tuple':[5,5,5]}"), ""},
    {"torch.nn.ConvTranspose2d", "'in_channels':6,'out_channels':6,'groups':2", "'weight':'w6355','bias':'b6'", "", ""},
    {"torch.nn.ConvTranspose2d", "'in_channels':3,'out_channels':6,'groups':1", "'weight':'w6355','bias':'b6'", "",
     BAD("parameters/weight")},
    {NORM("'num_features':6", "'weight':'b6','bias':'b6'", "'running_mean':'b6','running_var':'b6','num_batches_tracked':'n'"),
     ""},
    {NORM("'num_features':6", "'weight':'b6','bias':'b6'", "'running_mean':null,'running_var':'b3'"),
     BAD("buffers/running_var")},
    {NORM("'num_features':6,'affine':false", "'weight':null,'bias':null", ""), ""},
    {NORM("'num_features':6,'affine':false", "'weight':'b6'", ""), BAD("parameters/weight")},
    {NORM("'num_features':6,'bias':false", "'weight':'b6','bias':null", ""), ""},
    {NORM("'num_features':3", "'weight':'b6','bias':'b6'", ""), BAD("parameters/bias") BAD("parameters/weight")},
    {"torch.nn.LayerNorm", "'normalized_shape':{'$tuple':[3,4]}", "'weight':'w34','bias':'w34'", "", ""},
    {"torch.nn.LayerNorm", "'normalized_shape':{'$tuple':[3,4]},'bias':false", "'weight':'w34','bias':null", "", ""},
    {"torch.nn.LayerNorm", "'normalized_shape':{'$tuple':[4,3]},'bias':false", "'weight':'w34'", "", BAD("parameters/weight")},
    {"torch.nn.LayerNorm", "'normalized_shape':3,'elementwise_affine':false", "'weight':null,'bias':null", "", ""},
    {"torch.nn.GroupNorm", "'num_groups':4,'num_channels':6", "'weight':'b6','bias':'b6'", "", BAD("config/num_channels")},
    {"torch.nn.InstanceNorm2d", "'num_features':6", "'weight':null,'bias':null", "", ""},
    {"torch.nn.Embedding", "'num_embeddings':3,'embedding_dim':4", "'weight':'w34'", "", ""},
    {"torch.nn.Embedding", "'num_embeddings':4,'embedding_dim':4", "'weight':'w34'", "", BAD("parameters/weight")},
    {"torch.nn.PReLU", "", "'weight':'b3'", "", BAD("parameters/weight")},
    {"torch.nn.PReLU", "'num_parameters':3", "'weight':'b3'", "", ""},
    {"torch.nn.MultiheadAttention", "'embed_dim':6,'num_heads':4", "'in_proj_bias':'b18'", "", BAD("config/embed_dim")},
    {"torch.nn.MultiheadAttention", "'embed_dim':6,'num_heads':2", "'in_proj_bias':'b18','in_proj_weight':null", "", ""},
};

#define TENSOR(name, shape) "{'name':'" name "','dtype':'float32','shape':" shape "}"

START_TEST(test_module) {
    char text[2048];
    snprintf(text, sizeof text,
             "{'path':'','type':'M','buffers':{'a':'w34','b':'b3','c':'b6','d':'w6355','e':'n','f':'b18'}},"
             "{'path':'m','type':'%s','config':{%s},'parameters':{%s},'buffers':{%s}}",
             modules[_i].type, modules[_i].config, modules[_i].parameters, modules[_i].buffers);
    char *errors = quoted_errors("{'name':'x','op':'placeholder','target':'x'},"
                                 "{'name':'f','op':'call_module','target':'m','args':[{'$node':'x'}]},"
                                 "{'name':'output','op':'output','target':'output','args':[null]}",
                                 text,
                                 TENSOR("w34", "[3,4]") "," TENSOR("b3", "[3]") "," TENSOR("b6", "[6]") "," TENSOR(
                                     "w6355", "[6,3,5,5]") "," TENSOR("n", "[]") "," TENSOR("b18", "[18]"));
    ck_assert_msg(strcmp(errors, modules[_i].errors) == 0, "%s {%s}: %s", modules[_i].type, modules[_i].config, errors);
    free(errors);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("module");
    tcase_add_loop_test(cases, test_module, 0, (int)(sizeof modules / sizeof *modules));
    return run_tests("module", cases);
}
