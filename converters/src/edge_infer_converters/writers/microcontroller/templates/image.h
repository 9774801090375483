/* The steps from an image to the input of ${prefix}.c, by edge-infer. */
#ifndef ${upper}_IMAGE_H
#define ${upper}_IMAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The image: bytes of 0 to 255, row by row from the top, the channels of a pixel side by side ($mode). */
#define ${upper}_IMAGE_WIDTH $source_width
#define ${upper}_IMAGE_HEIGHT $source_height
#define ${upper}_IMAGE_CHANNELS $channels

/* Take row `y` of an image, as a camera gives them: all rows, in order, from 0 on. After the last one the input of the
   model is written, and `${prefix}_run()` may follow. */
void ${prefix}_image_row(int y, const uint8_t *pixels);

/* The same for an image that lies in memory. */
void ${prefix}_image(const uint8_t *pixels);

#ifdef __cplusplus
}
#endif

#endif
