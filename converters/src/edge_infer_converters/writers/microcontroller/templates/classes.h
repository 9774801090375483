/* The classes of ${prefix}.c, the best first, by edge-infer. */
#ifndef ${upper}_CLASSES_H
#define ${upper}_CLASSES_H

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_CLASSES $size
$labels
/* After a run, write the numbers of the best classes, and return how many: `count`, or all. Of equal ones the first. */
int ${prefix}_top_k(int count, int *classes);

#ifdef __cplusplus
}
#endif

#endif
