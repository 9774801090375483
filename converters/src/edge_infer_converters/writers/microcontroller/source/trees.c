/* A node is three words: a column and a comparison, the threshold, and the node where the comparison is false; where it
   is true the next node follows. A leaf is -1, and the first and the last but one of its votes; a vote is a target and
   a weight. A node that leads backwards, or to a column that is not there, ends its tree. */
struct node { int32_t test; union { float threshold; int32_t first; } a; int32_t other; };
struct vote { int32_t target; float weight; };

enum { AT_MOST, LESS, AT_LEAST, MORE, EQUAL };

static int32_t holds(int32_t kind, float value, float threshold) {
  switch (kind) {
    case AT_MOST: return value <= threshold;
    case LESS: return value < threshold;
    case AT_LEAST: return value >= threshold;
    case MORE: return value > threshold;
    case EQUAL: return value == threshold;
    default: return value != threshold;
  }
}

static void trees(const struct trees_call *a) {
  const float *input = a->input, *base = a->base;
  const struct node *nodes = a->nodes;
  const struct vote *votes = a->votes;
  const int32_t *roots = a->roots;
  float *output = a->output;
  double *sums = a->scratch;
  for (int32_t row = 0; row < a->rows; row++, input += a->columns, output += a->targets) {
    for (int32_t i = 0; i < a->targets; i++) sums[i] = base[i];
    for (int32_t tree = 0; tree < a->trees; tree++) {
      int32_t place = roots[tree], column;
      while ((uint32_t)place < (uint32_t)a->node_count) {
        const struct node *node = nodes + place;
        if (node->test == -1) {
          int32_t last = least(node->other, a->vote_count);
          for (int32_t i = most(node->a.first, 0); i < last; i++)
            if ((uint32_t)votes[i].target < (uint32_t)a->targets) sums[votes[i].target] += votes[i].weight;
          break;
        }
        /* The low bits: where a missing value goes, and the comparison. */
        column = (node->test >> 4) & 0xFFFFFFF;
        if (column >= a->columns) break;
        float value = input[column];
        int32_t is_true = value != value ? node->test & 8 : holds(node->test & 7, value, node->a.threshold);
        int32_t next = is_true ? place + 1 : node->other;
        if (next <= place) break;
        place = next;
      }
    }
    for (int32_t i = 0; i < a->targets; i++) output[i] = (float)sums[i];
  }
}
