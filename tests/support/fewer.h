/* The part of its draws that a test is asked for: under ThreadSanitizer a plan that takes 0.1 s
 * takes seconds. */
#ifndef SBP_TESTS_FEWER_H
#define SBP_TESTS_FEWER_H

#include <stdlib.h>

/* SBP_TEST_FEWER in the environment asks for one draw in so many; 1 where it is unset. */
static inline int one_in(void)
{
    const char *fewer = getenv("SBP_TEST_FEWER");
    const int part = fewer == NULL ? 1 : (int)strtol(fewer, NULL, 10);
    return part > 1 ? part : 1;
}

#endif
