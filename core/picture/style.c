#include "core/picture/picture.h"

#include "picture_style.inc"
