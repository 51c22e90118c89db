/* Wider vector instructions for the loops in which a search spends its time.
 *
 * SBP_SIMD before a function compiles it a second time for AVX2; the loader picks that version on
 * machines that have it. Both do the same operations in the same order, so answers do not depend on
 * the machine. The macro is empty where compiler or sanitizers do not allow this.
 */
#ifndef SBP_BASE_MATH_SIMD_H
#define SBP_BASE_MATH_SIMD_H

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) &&   \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SBP_SIMD __attribute__((target_clones("avx2", "default")))
#else
#define SBP_SIMD
#endif

#endif
