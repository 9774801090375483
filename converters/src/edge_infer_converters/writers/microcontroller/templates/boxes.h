/* The objects that ${prefix}.c finds, by edge-infer: decoded and thinned out by the steps of its bundle. */
#ifndef ${upper}_BOXES_H
#define ${upper}_BOXES_H

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_BOXES_MOST $limit
$label_lines
/* An object, in pixels of $pixels. */
struct ${prefix}_box {
  $real left, top, right, bottom, score;
  int label;$point_field
};

/* After a run, write the objects of a score above $threshold, $order, and return how many: at most `most`.
   It needs no memory but $memory. */
int ${prefix}_boxes(struct ${prefix}_box *found, int most);

#ifdef __cplusplus
}
#endif

#endif
