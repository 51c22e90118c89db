/* cmocka, after the headers that its own header needs and leaves to its reader. */
#ifndef SBP_TESTS_UNIT_H
#define SBP_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
