/* Rows of a table: the highest of each, norms, distances, and the votes of support vector machines. */
#include "vectors.h"

/* The place of the highest value, or of the lowest; of equal ones the first. */
COLD(arg_max) {
  const float *input = AT(const float, input);
  int32_t *output = AT(int32_t, output);
  float sign = a->is_lowest ? -1.0f : 1.0f;
  for (int32_t row = 0; row < a->rows; row++, input += a->columns) {
    int32_t best = 0;
    for (int32_t i = 1; i < a->columns; i++)
      if (input[i] * sign > input[best] * sign) best = i;
    *output++ = best;
  }
}

/* Divided by the sum of sizes (0), the length (1) or the largest size (2) of a row; a row of zeros stays. */
COLD(normalize_rows) {
  const float *input = AT(const float, input);
  float *output = AT(float, output);
  for (int32_t row = 0; row < a->rows; row++, input += a->columns, output += a->columns) {
    float sum = 0.0f;
    for (int32_t i = 0; i < a->columns; i++) {
      float size = input[i] < 0 ? -input[i] : input[i];
      sum = a->kind == 2 ? most_float(sum, size) : sum + (a->kind == 1 ? size * size : size);
    }
    if (a->kind == 1) sum = __builtin_sqrtf(sum);
    for (int32_t i = 0; i < a->columns; i++) output[i] = sum != 0.0f ? input[i] / sum : input[i];
  }
}

/* The squared distances of each row to points. */
COLD(distances) {
  const float *input = AT(const float, input);
  float *output = AT(float, output);
  for (int32_t row = 0; row < a->rows; row++, input += a->columns) {
    const float *point = AT(const float, points);
    for (int32_t i = 0; i < a->count; i++, point += a->columns) {
      double sum = 0.0;
      for (int32_t k = 0; k < a->columns; k++) {
        double rest = (double)input[k] - point[k];
        sum += rest * rest;
      }
      *output++ = (float)sum;
    }
  }
}

typedef double double4 __attribute__((aligned(4)));

/* Of each pair of classes a decision: a vote for the first where it is above 0, else for the second. `output` is the
   votes of each class; with coefficients (A, then B of each pair) its probability, by libsvm's multiclass_probability
   (Wu, Lin and Weng 2004). `scratch` is the matrix of the pairs and a row, of doubles. */
INLINE double pair_product(const double4 *matrix, int32_t classes, int32_t t, int32_t j) {
  double own = matrix[t * classes + j];
  return t == j ? own : -own * matrix[j * classes + t];
}

COLD(pair_votes) {
  int32_t classes = a->classes, pairs = classes * (classes - 1) / 2;
  const float *decisions = AT(const float, input), *sigmoids = AT(const float, sigmoids);
  float *output = AT(float, output);
  double4 *matrix = AT(double4, scratch), *products = matrix + classes * classes, *shares = products + classes;
  for (int32_t row = 0; row < a->rows; row++, decisions += pairs, output += classes) {
    for (int32_t i = 0; i < classes; i++) output[i] = 0.0f;
    for (int32_t i = 0, pair = 0; i < classes; i++)
      for (int32_t j = i + 1; j < classes; j++, pair++) {
        output[decisions[pair] > 0.0f ? i : j] += 1.0f;
        if (!a->has_probabilities) continue;
        float share = 1.0f / (1.0f + exponential(decisions[pair] * sigmoids[pair] + sigmoids[pairs + pair]));
        share = least_float(most_float(share, 1e-7f), 1.0f - 1e-7f);
        matrix[i * classes + j] = share;
        matrix[j * classes + i] = 1.0f - share;
      }
    if (!a->has_probabilities) continue;
    /* Q[t][t] is the sum of squares of the others' shares against t, Q[t][j] minus the product of both. */
    for (int32_t t = 0; t < classes; t++) {
      double sum = 0.0;
      for (int32_t j = 0; j < classes; j++)
        if (j != t) sum += matrix[j * classes + t] * matrix[j * classes + t];
      matrix[t * classes + t] = sum;
      shares[t] = 1.0 / classes;
    }
    for (int32_t turn = 0; turn < most(100, classes); turn++) {
      double whole = 0.0, error = 0.0;
      for (int32_t t = 0; t < classes; t++) {
        double sum = 0.0;
        for (int32_t j = 0; j < classes; j++) sum += pair_product(matrix, classes, t, j) * shares[j];
        products[t] = sum;
        whole += shares[t] * sum;
      }
      for (int32_t t = 0; t < classes; t++) {
        double rest = products[t] - whole;
        rest = rest < 0 ? -rest : rest;
        error = rest > error ? rest : error;
      }
      if (error < 0.005 / classes) break;
      for (int32_t t = 0; t < classes; t++) {
        double own = matrix[t * classes + t], rest = (whole - products[t]) / own, scale = 1.0 + rest;
        shares[t] += rest;
        whole = (whole + rest * (rest * own + 2 * products[t])) / scale / scale;
        for (int32_t j = 0; j < classes; j++) {
          products[j] = (products[j] + rest * pair_product(matrix, classes, t, j)) / scale;
          shares[j] /= scale;
        }
      }
    }
    for (int32_t i = 0; i < classes; i++) output[i] = (float)shares[i];
  }
}
