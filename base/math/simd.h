/* Inner loops that a search spends its time in: SBP_SIMD before such a function compiles it for
 * AVX2 as well, which is chosen at load time where the machine has it. The same operations in the
 * same order: answers do not depend on the machine. Only where compiler and sanitizers allow it.
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
