/* Motifs of random documents; for generator*.c alone. */
#ifndef FB_TESTS_GENERATOR_MOTIFS_H
#define FB_TESTS_GENERATOR_MOTIFS_H

#include "tests/unit/generator_internal.h"

void add_linear_group(generator *g);
void add_single_linear(generator *g);
void add_conv_pair(generator *g);
void add_linear_pair(generator *g);
void add_sandwich(generator *g);
void tamper_with_layer(generator *g);
void add_nested_program(generator *g);
void add_unknown_module(generator *g);

/* Writes into the value's memory, in one of many ways. */
void write_into_value(generator *g, const result *x);
/* A view that joins its last dimension with the others. */
void add_flat_view(generator *g, const result *x);
/* generator_no_ops.c */
void add_no_op(generator *g);
void add_views(generator *g);
void add_again(generator *g);
void add_effect(generator *g);
/* generator_folds.c */
void add_weight_arithmetic(generator *g);
void add_scaled_linear(generator *g);
void add_scaled_conv(generator *g);
void add_norm_and_linears(generator *g);

#endif
