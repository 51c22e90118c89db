/* Logarithms, exponentials and powers that give the same bits on every machine.
 *
 * Mathematics libraries differ in the last digit, and one library from processor to processor (with
 * or without fused multiply-add). Where such a digit can decide between two plans, or stands in
 * one, these are used: additions, multiplications and divisions alone, which IEEE 754 fixes, in an
 * order that compilers keep (no contraction, no excess precision). Errors are a few units in the
 * last place, of powers so many times the logarithm of the result.
 */
#ifndef SBP_BASE_MATH_PORTABLE_H
#define SBP_BASE_MATH_PORTABLE_H

/* Natural; -INFINITY at 0, NAN below. */
double sbp_log(double x);
/* To base 2; exact at powers of 2. */
double sbp_log2(double x);
/* 0 and INFINITY beyond the range. */
double sbp_exp(double x);
/* x to the power of y, x > 0; exact where y is 0 or 1. */
double sbp_pow(double x, double y);

#endif
