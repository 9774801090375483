The parts of a detector's C, one for each way to choose boxes.
/*** move
MOVES
static real inside(real value, real size) { return value < 0 ? 0 : value > size ? size : value; }

/* Move an object from the model's input to the image, and clip its box. */
static void move(box *one) {
  one->left = inside(x_of(one->left), WIDTH_);
  one->top = inside(y_of(one->top), HEIGHT_);
  one->right = inside(x_of(one->right), WIDTH_);
  one->bottom = inside(y_of(one->bottom), HEIGHT_);
POINTED}
/*** points
  {
    int k;
    for (k = 0; k < POINTS; k++) {
      one->points[2 * k] = x_of(one->points[2 * k]);
      one->points[2 * k + 1] = y_of(one->points[2 * k + 1]);
    }
  }
/*** plain

int PREFIX_boxes(box *found, int most) {
  int count = 0;
  int32_t place;
  for (place = 0; place < COUNT && count < most; place++) {
    if (!is_object(place, &found[count].score, &found[count].label)) continue;
    decode(place, &found[count]);
    move(&found[count++]);
  }
  return count;
}
/*** greedy

/* Find the best object of all behind one, in the order of scores and then of places; -1 where none is left. */
static int32_t next(int32_t place, real last, real *score, int *label) {
  int32_t best = -1, i;
  for (i = 0; i < COUNT; i++) {
    real one;
    int its;
    if (!is_object(i, &one, &its)) continue;
    if (place >= 0 && !(one < last || (one == last && i > place))) continue;
    if (best >= 0 && !(one > *score)) continue;
    best = i;
    *score = one;
    *label = its;
  }
  return best;
}

static float area(const box *one) { return (one->right - one->left) * (one->bottom - one->top); }

/* Whether a box covers so much of another that both are the same object. */
static int covers(const box *one, const box *other) {
  float width = (other->right < one->right ? other->right : one->right) -
                (other->left > one->left ? other->left : one->left);
  float height = (other->bottom < one->bottom ? other->bottom : one->bottom) -
                 (other->top > one->top ? other->top : one->top);
  float shared = width * height, both = area(one) + area(other) - shared;
  if (width <= 0 || height <= 0) return 0;
  return both > 0 && shared / both >= LEAST_OVERLAPSAME_CLASS;
}

int PREFIX_boxes(box *found, int most) {
  int count = 0, label = 0, i;
  int32_t place = -1;
  real score = 0;
  if (most > UPPER_BOXES_MOST) most = UPPER_BOXES_MOST;
  while (count < most && (place = next(place, score, &score, &label)) >= 0) {
    box *made = &found[count];
    made->score = score;
    made->label = label;
    decode(place, made);
    for (i = 0; i < count && !covers(&found[i], made); i++) continue;
    if (i == count) count++;
  }
  for (i = 0; i < count; i++) move(&found[i]);
  return count;
}
/*** weighted

static uint8_t taken[(COUNT + 7) / 8];

/* Find the best object of all behind one that is not taken, in the order of scores and then of places; else -1. */
static int32_t next(int32_t place, real last, real *score, int *label) {
  int32_t best = -1, i;
  for (i = 0; i < COUNT; i++) {
    real one;
    int its;
    if (taken[i / 8] >> i % 8 & 1 || !is_object(i, &one, &its)) continue;
    if (place >= 0 && !(one < last || (one == last && i > place))) continue;
    if (best >= 0 && !(one > *score)) continue;
    best = i;
    *score = one;
    *label = its;
  }
  return best;
}

static real area(const box *one) { return (one->right - one->left) * (one->bottom - one->top); }

static int covers(const box *one, const box *other) {
  real width = (other->right < one->right ? other->right : one->right) -
               (other->left > one->left ? other->left : one->left);
  real height = (other->bottom < one->bottom ? other->bottom : one->bottom) -
                (other->top > one->top ? other->top : one->top);
  real shared = (width < 0 ? 0 : width) * (height < 0 ? 0 : height);
  real both = area(one) + area(other) - shared;
  return both > 0 && shared / both > LEAST_OVERLAP;
}

/* Add a box, times its score. */
static void add(box *sum, const box *one) {
  int k;
  sum->left += one->score * one->left;
  sum->top += one->score * one->top;
  sum->right += one->score * one->right;
  sum->bottom += one->score * one->bottom;
  ADDED
  sum->score += one->score;
}

int PREFIX_boxes(box *found, int most) {
  int count = 0, label = 0, k;
  real score = 0;
  int32_t place;
  memset(taken, 0, sizeof taken);
  if (most > UPPER_BOXES_MOST) most = UPPER_BOXES_MOST;
  while (count < most && (place = next(-1, score, &score, &label)) >= 0) {
    box best, one, *sum = &found[count++];
    real last = score;
    int its = label;
    best.score = score;
    decode(place, &best);
    memset(sum, 0, sizeof *sum);
    add(sum, &best);
    taken[place / 8] |= 1 << place % 8;
    while ((place = next(place, last, &score, &its)) >= 0) {
      last = one.score = score;
      decode(place, &one);
      if (!covers(&best, &one)) continue;
      add(sum, &one);
      taken[place / 8] |= 1 << place % 8;
    }
    sum->left /= sum->score;
    sum->top /= sum->score;
    sum->right /= sum->score;
    sum->bottom /= sum->score;
    DIVIDED
    sum->score = best.score;
    sum->label = label;
    move(sum);
  }
  return count;
}
/*** test

/* Exponentials of another C library may differ in the last bit. */
static int are_near(int count, const float (*want)[6]) {
  static struct PREFIX_box found[MOST];
  int i, k, right = PREFIX_boxes(found, MOST) == count;
  for (i = 0; right && i < count; i++) {
    float got[6];
    got[0] = (float)found[i].left, got[1] = (float)found[i].top;
    got[2] = (float)found[i].right, got[3] = (float)found[i].bottom;
    got[4] = (float)found[i].score, got[5] = (float)found[i].label;
    for (k = 0; k < 6; k++) {
      float far = got[k] - want[i][k], size = want[i][k] < 0 ? -want[i][k] : want[i][k];
      if (far < 0) far = -far;
      if (want[i][k] != got[k] && !(far <= 1e-4f * (size > 1 ? size : 1))) right = 0;
    }
  }
  return right;
}
