/* The features of a sound that ${prefix}.c takes: TensorFlow Lite Micro's audio frontend, by edge-infer. */
#ifndef ${upper}_FEATURES_H
#define ${upper}_FEATURES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Samples of a second, of a frame, and from one frame to the next; features of a frame. */
#define ${upper}_RATE $rate
#define ${upper}_WINDOW $window
#define ${upper}_HOP $hop
#define ${upper}_CHANNELS $channels

/* Make the $channels features of a frame of $window samples of 16 bits: $meaning. */
void ${prefix}_features(const int16_t *samples, $kind *features);

/* Forget the noise that was heard: before the first frame of each sound. */
void ${prefix}_features_reset(void);

#ifdef __cplusplus
}
#endif

#endif
