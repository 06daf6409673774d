/* Where the boxes and lines of a picture stand. */
#ifndef FB_PICTURE_PLACE_H
#define FB_PICTURE_PLACE_H

#include "core/picture/picture.h"

/* False: fb_work_failed says why. */
bool fb_picture_place(fb_picture *picture, fb_work *work);

#endif
