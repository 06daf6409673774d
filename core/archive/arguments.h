/* Arguments of calls as the document spells them; for core/archive alone. */
#ifndef FB_ARCHIVE_ARGUMENTS_H
#define FB_ARCHIVE_ARGUMENTS_H

#include "core/archive/internal.h"

typedef struct pt_arguments {
    pt_model *m;
    const pt_program *program;
    const pt_row *row; /* of the program: it reads only what stands before it */
    int depth;
    pt_row *reads; /* the program's rows, to be marked as read; or NULL */
} pt_arguments;

bool pt_put_argument(pt_arguments *a, const fb_json *argument, fb_buffer *out);
/* A row's node. */
void pt_put_row(pt_arguments *a, uint32_t index, fb_buffer *out);
/* The arguments of any row; those of the output are in write.c. */
bool pt_put_all(pt_arguments *a, fb_buffer *args, fb_buffer *kwargs);
/* The items of args, and the members of kwargs. */
bool pt_put_arguments(pt_arguments *a, const fb_json *inputs, fb_buffer *args, fb_buffer *kwargs);
/* What PyTorch calls the parameter of an ATen operator that is given by position; false where that is not known. */
bool pt_parameter_at(const char *target, size_t place, const char **name, size_t *length);
/* Its place among all of the operator's parameters, also those by name only; UINT32_MAX where that is not known. */
uint32_t pt_place_of(const char *target, const char *parameter);
bool pt_put_device(pt_model *m, const fb_json *device, fb_buffer *out);

#endif
