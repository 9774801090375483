/* TensorFlow Lite Micro's audio frontend (tensorflow/lite/experimental/microfrontend/lib) with kissfft in 16 bits: a window,
   a Fourier transform, bands, the removal of steady noise, $gained a logarithm. All numbers are integers. */
#include "${prefix}_features.h"

#include <string.h>

enum { SIZE = $size, HALF = $size / 2 };

$tables

static uint32_t noise[${upper}_CHANNELS];
static int16_t samples_of[SIZE], parts[HALF][2];
static uint32_t energies[HALF + 1];

static int16_t wrapped(int32_t value) {
  int32_t low = value & INT32_C(0xFFFF);
  return (int16_t)(low - ((low & INT32_C(0x8000)) << 1));
}

static int16_t rounded(int32_t value) { return wrapped((value + (INT32_C(1) << 14)) >> 15); }

static int32_t divided(int32_t value, int32_t by) { return rounded(value * (INT32_C(32767) / by)); }

static void turn(int32_t *real, int32_t *imaginary, const int16_t *by) {
  int32_t a = *real, b = *imaginary;
  *real = rounded(a * by[0] - b * by[1]);
  *imaginary = rounded(a * by[1] + b * by[0]);
}

static void two(int16_t (*at)[2], int length, int stride) {
  int k, i;
  for (k = 0; k < length; k++) {
    int32_t own[2], other[2];
    for (i = 0; i < 2; i++) own[i] = divided(at[k][i], 2), other[i] = divided(at[k + length][i], 2);
    turn(&other[0], &other[1], turns[k * stride]);
    for (i = 0; i < 2; i++) at[k + length][i] = wrapped(own[i] - other[i]), at[k][i] = wrapped(own[i] + other[i]);
  }
}

static void four(int16_t (*at)[2], int length, int stride) {
  int k, i;
  for (k = 0; k < length; k++) {
    int32_t x[4][2];
    for (i = 0; i < 4; i++) {
      x[i][0] = divided(at[k + i * length][0], 4);
      x[i][1] = divided(at[k + i * length][1], 4);
      if (i) turn(&x[i][0], &x[i][1], turns[i * k * stride]);
    }
    for (i = 0; i < 2; i++) {
      int32_t over = x[0][i] - x[2][i], under = x[0][i] + x[2][i], both = x[1][i] + x[3][i];
      int32_t apart = i ? x[3][0] - x[1][0] : x[1][1] - x[3][1];
      at[k][i] = wrapped(under + both);
      at[k + 2 * length][i] = wrapped(under - both);
      at[k + length][i] = wrapped(over + apart);
      at[k + 3 * length][i] = wrapped(over - apart);
    }
  }
}

/* A transform of SIZE real numbers by one of half as many complex ones; what comes out are the squares of its sizes. */
static void transform(void) {
  int place, level, length = 1, k;
  for (place = 0; place < HALF; place++) {
    int source = 0, rest = place, left = HALF, stride = 1;
    for (level = 0; level < LEVELS; level++) {
      left /= radices[level];
      source += rest / left * stride;
      rest %= left;
      stride *= radices[level];
    }
    parts[place][0] = samples_of[2 * source];
    parts[place][1] = samples_of[2 * source + 1];
  }
  for (level = LEVELS - 1; level >= 0; length *= radices[level--]) {
    int block = length * radices[level];
    for (place = 0; place < HALF; place += block) {
      if (radices[level] == 4)
        four(parts + place, length, HALF / block);
      else
        two(parts + place, length, HALF / block);
    }
  }
  {
    int32_t a = divided(parts[0][0], 2), b = divided(parts[0][1], 2);
    int32_t first = wrapped(a + b), last = wrapped(a - b);
    energies[0] = (uint32_t)(first * first);
    energies[HALF] = (uint32_t)(last * last);
  }
  for (k = 1; k <= HALF / 2; k++) {
    int32_t a = divided(parts[k][0], 2), b = divided(parts[k][1], 2);
    int32_t c = divided(parts[HALF - k][0], 2), d = divided(-(int32_t)parts[HALF - k][1], 2);
    int32_t sum[2], turned[2], up[2], down[2];
    sum[0] = a + c, sum[1] = b + d, turned[0] = a - c, turned[1] = b - d;
    turn(&turned[0], &turned[1], half_turns[k - 1]);
    up[0] = (sum[0] + turned[0]) >> 1, up[1] = (sum[1] + turned[1]) >> 1;
    down[0] = (sum[0] - turned[0]) >> 1, down[1] = (turned[1] - sum[1]) >> 1;
    energies[k] = (uint32_t)(up[0] * up[0]) + (uint32_t)(up[1] * up[1]);
    energies[HALF - k] = (uint32_t)(down[0] * down[0]) + (uint32_t)(down[1] * down[1]);
  }
}

static uint32_t root_of(uint64_t value) {
  uint64_t root = 0, bit = UINT64_C(1) << 62, rest = value;
  uint32_t most = value >> 32 ? UINT32_C(0xFFFFFFFF) : UINT32_C(0xFFFF);
  while (bit > rest) bit >>= 2;
  for (; bit; bit >>= 2) {
    if (rest >= root + bit) {
      rest -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  return (uint32_t)root + (rest > root && root != most);
}

static int bits_of(uint32_t value) {
  int bits = 0;
  for (; value; value >>= 1) bits++;
  return bits;
}
$gain
static uint32_t logarithm_of(uint32_t value) {
  int whole = bits_of(value) - 1;
  uint32_t part = value - (UINT32_C(1) << whole), segment, natural;
  int32_t low, high, fraction;
  part = whole < 16 ? part << (16 - whole) : part >> (whole - 16);
  segment = part >> 9;
  low = logarithms[segment], high = logarithms[segment + 1];
  fraction = (int32_t)part + low + (((high - low) * (int32_t)(part - 512 * segment)) >> 16);
  natural = (uint32_t)((UINT64_C(45426) * (((uint32_t)whole << 16) + (uint32_t)fraction) + 32768) >> 16);
  return ((natural << 6) + 32768) >> 16;
}

static uint32_t finished(int band, uint32_t signal) {
  uint32_t smoothing = band & 1 ? 983 : 409, scaled = signal << 10, left, least;
  noise[band] = (uint32_t)(((uint64_t)scaled * smoothing + (uint64_t)noise[band] * (16384 - smoothing)) >> 14);
  left = (scaled - (noise[band] < scaled ? noise[band] : scaled)) >> 10;
  least = (uint32_t)(((uint64_t)signal * 819) >> 14);
  signal = left > least ? left : least;
$apply  signal = $corrected;
  if (signal <= 1) return 0;
  signal = logarithm_of(signal);
  return signal < 0xFFFF ? signal : 0xFFFF;
}
$levels
void ${prefix}_features(const int16_t *samples, $kind *features) {
  int32_t largest = 0;
  uint64_t carried = 0;
  int i, band, shift, at = 0;
  memset(samples_of, 0, sizeof samples_of);
  for (i = 0; i < ${upper}_WINDOW; i++) {
    int32_t value = (samples[i] * (int32_t)weights[i]) >> 12, one = value < 0 ? -value : value;
    samples_of[i] = (int16_t)value;
    if (one > largest && value != -32768) largest = one;
  }
  shift = 15 - bits_of((uint32_t)largest);
  for (i = 0; i < SIZE; i++) samples_of[i] = wrapped(samples_of[i] * (INT32_C(1) << shift));
  transform();
  for (band = -1; band < ${upper}_CHANNELS; band++) {
    uint64_t energy = carried;
    carried = 0;
    for (i = bands[band + 1][0]; i < bands[band + 1][0] + bands[band + 1][1]; i++, at++) {
      energy += (uint64_t)rises[at] * energies[i];
      carried += (uint64_t)falls[at] * energies[i];
    }
    if (band >= 0) features[band] = $result;
  }
}

void ${prefix}_features_reset(void) { memset(noise, 0, sizeof noise); }
