/* Wider vector instructions for the loops in which a program spends its time.
 *
 * SBP_SIMD before a function compiles it a second time for AVX2, SBP_SIMD_WIDE a third time for
 * AVX-512; the loader picks the widest version that the machine has. All do the same operations in
 * the same order, without fused ones (-ffp-contract=off), so answers do not depend on the machine.
 * The macros are empty where compiler or sanitizers do not allow this.
 */
#ifndef SBP_BASE_MATH_SIMD_H
#define SBP_BASE_MATH_SIMD_H

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) &&   \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SBP_SIMD __attribute__((target_clones("avx2", "default")))
#if __GNUC__ >= 12 /* the first that knows levels here; "avx512f" lacks what random bits need */
#define SBP_SIMD_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SBP_SIMD_WIDE SBP_SIMD
#endif
#else
#define SBP_SIMD
#define SBP_SIMD_WIDE
#endif

/* Before a loop whose iterations touch no element of each other's, though two pointers may be the
 * same: compilers need not look at run time whether arrays overlap. */
#if defined(__GNUC__) && !defined(__clang__)
#define SBP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define SBP_INDEPENDENT
#endif

#endif
