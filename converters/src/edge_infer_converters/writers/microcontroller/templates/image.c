/* An image of $source_width x $source_height pixels becomes the input of ${prefix}.c, $width x $height: as Pillow resizes, bit for bit.
   Each row of the image is resized across and kept; rows that are kept are resized down. */
#include "${prefix}_image.h"

#include "${prefix}.h"

enum {
  SOURCE_WIDTH = ${upper}_IMAGE_WIDTH,
  SOURCE_HEIGHT = ${upper}_IMAGE_HEIGHT,
  CHANNELS = ${upper}_IMAGE_CHANNELS,
  WIDTH = $width, /* of the input */
  HEIGHT = $height,
  LEFT = $left, /* where the image lies in the input */
  TOP = $top,
  ACROSS = $across, /* its pixels there */
  DOWN = $down,
  ROWS = $rows, /* the rows that are kept */
  BITS = 22 /* of a weight, behind the point */
};

/* What a pixel is made of: the first pixel of the source, how many, and where their weights begin. */
struct taps {
  $place first, count, weights;
};

$tables

static uint8_t rows[ROWS][ACROSS * CHANNELS];
static int made; /* the rows of the input that this image has already */

static void put(int x, int y, int channel, uint8_t level) {
  ${input}()[$index] = $number;
}

static uint8_t level_of(int32_t sum) {
  if (sum < 0) return 0;
  sum >>= BITS;
  return sum < 255 ? (uint8_t)sum : 255;
}

static void resize_across(const uint8_t *pixels, uint8_t *row) {
  int x, channel, k;
  for (x = 0; x < ACROSS; x++) {
    const int32_t *weight = weights + across[x].weights;
    const uint8_t *from = pixels + across[x].first * CHANNELS;
    for (channel = 0; channel < CHANNELS; channel++) {
      int32_t sum = INT32_C(1) << (BITS - 1);
      for (k = 0; k < across[x].count; k++) sum += weight[k] * from[k * CHANNELS + channel];
      *row++ = level_of(sum);
    }
  }
}

static void resize_down(int y) {
  int x, channel, k;
  const int32_t *weight = weights + down[y].weights;
  for (x = 0; x < ACROSS; x++) {
    for (channel = 0; channel < CHANNELS; channel++) {
      int32_t sum = INT32_C(1) << (BITS - 1);
      for (k = 0; k < down[y].count; k++) sum += weight[k] * rows[(down[y].first + k) % ROWS][x * CHANNELS + channel];
      put(LEFT + x, TOP + y, channel, level_of(sum));
    }
  }
}
$fill
void ${prefix}_image_row(int y, const uint8_t *pixels) {
  if (y == 0) $begin
  if (made == DOWN) return;
  resize_across(pixels, rows[y % ROWS]);
  while (made < DOWN && down[made].first + down[made].count <= y + 1) resize_down(made++);
}

void ${prefix}_image(const uint8_t *pixels) {
  int y;
  for (y = 0; y < SOURCE_HEIGHT; y++, pixels += SOURCE_WIDTH * CHANNELS) ${prefix}_image_row(y, pixels);
}
