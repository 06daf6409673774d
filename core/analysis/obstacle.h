#ifndef FB_ANALYSIS_OBSTACLE_H
#define FB_ANALYSIS_OBSTACLE_H

/* Why something must stay as it is: a reason code of the API, and one sentence. No code: no obstacle. */
typedef struct fb_obstacle {
    const char *code, *detail;
} fb_obstacle;
#define FB_NO_OBSTACLE ((fb_obstacle){0})

#endif
