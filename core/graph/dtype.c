#include <string.h>

#include "core/graph/graph.h"

static const struct {
    const char *name;
    size_t size;
    char family; /* f floating, i integer or bool, c complex */
} dtypes[FB_DTYPE_COUNT] = {
    [FB_FLOAT64] = {"float64", 8, 'f'},
    [FB_FLOAT32] = {"float32", 4, 'f'},
    [FB_FLOAT16] = {"float16", 2, 'f'},
    [FB_BFLOAT16] = {"bfloat16", 2, 'f'},
    [FB_INT64] = {"int64", 8, 'i'},
    [FB_INT32] = {"int32", 4, 'i'},
    [FB_INT16] = {"int16", 2, 'i'},
    [FB_INT8] = {"int8", 1, 'i'},
    [FB_UINT8] = {"uint8", 1, 'i'},
    [FB_BOOL] = {"bool", 1, 'i'},
    [FB_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1, 'f'},
    [FB_FLOAT8_E5M2] = {"float8_e5m2", 1, 'f'},
    [FB_COMPLEX64] = {"complex64", 8, 'c'},
    [FB_COMPLEX128] = {"complex128", 16, 'c'},
    [FB_UINT16] = {"uint16", 2, 'i'},
    [FB_UINT32] = {"uint32", 4, 'i'},
    [FB_UINT64] = {"uint64", 8, 'i'},
    [FB_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1, 'f'},
    [FB_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1, 'f'},
    [FB_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 1, 'f'},
    [FB_FLOAT4_E2M1FN_X2] = {"float4_e2m1fn_x2", 1, 'f'},
    [FB_FLOAT6_E2M3FN_X4] = {"float6_e2m3fn_x4", 3, 'f'},
    [FB_FLOAT6_E3M2FN_X4] = {"float6_e3m2fn_x4", 3, 'f'},
    [FB_COMPLEX32] = {"complex32", 4, 'c'},
    [FB_DTYPE_OTHER] = {"a dtype that is not known here", 0, 'o'},
};

const char *fb_dtype_name(fb_dtype dtype) {
    return dtype > FB_DTYPE_UNKNOWN && dtype < FB_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

fb_dtype fb_dtype_find(const char *name) {
    for (int i = 1; i < FB_DTYPE_OTHER; i++) {
        if (strcmp(dtypes[i].name, name) == 0) return (fb_dtype)i;
    }
    return FB_DTYPE_UNKNOWN;
}

size_t fb_dtype_size(fb_dtype dtype) {
    return dtypes[dtype].size;
}

int64_t fb_dtype_packs(fb_dtype dtype) {
    switch (dtype) {
    case FB_FLOAT4_E2M1FN_X2: return 2;
    case FB_FLOAT6_E2M3FN_X4:
    case FB_FLOAT6_E3M2FN_X4: return 4;
    default: return 1;
    }
}

bool fb_dtype_is_floating(fb_dtype dtype) {
    return dtypes[dtype].family == 'f';
}

bool fb_dtype_is_computed(fb_dtype dtype) {
    return dtype == FB_FLOAT64 || dtype == FB_FLOAT32 || dtype == FB_FLOAT16 || dtype == FB_BFLOAT16;
}

bool fb_dtype_is_complex(fb_dtype dtype) {
    return dtypes[dtype].family == 'c';
}

fb_dtype fb_dtype_part(fb_dtype dtype) {
    switch (dtype) {
    case FB_COMPLEX32: return FB_FLOAT16;
    case FB_COMPLEX64: return FB_FLOAT32;
    case FB_COMPLEX128: return FB_FLOAT64;
    default: return dtype;
    }
}

bool fb_dtype_is_integer(fb_dtype dtype) {
    return dtypes[dtype].family == 'i';
}
