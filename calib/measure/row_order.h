/* The order in which the dispatch of tokens to experts copies rows: by expert, those of one in
 * their own order, where a router sends each to any expert alike.
 */
#ifndef SBP_CALIB_MEASURE_ROW_ORDER_H
#define SBP_CALIB_MEASURE_ROW_ORDER_H

#include <stdint.h>

#define SBP_ROW_EXPERTS 8

/* row (rows): the row that comes i-th; all of 0 .. rows - 1, the same for a seed. */
void sbp_row_order(int32_t *row, int32_t rows, uint64_t seed);

#endif
