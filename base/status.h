/* Status codes: every fallible function of sbplan returns one of these by value.
 *
 * 0 is success, a negative value is an error, a positive one is an answer that is not a failure
 * (infeasible, stopped early). Below E_SIGNAL are the signals that ended a program, see signals.h.
 * Errors about input carry their text in a struct sbp_diag.
 */
#ifndef SBP_BASE_STATUS_H
#define SBP_BASE_STATUS_H

/* One table: code, symbol, text. */
#define SBP_STATUS_MAP(X)                                                                          \
    X(1, NO, "the answer is no")                                                                   \
    X(2, STOPPED, "stopped early")                                                                 \
    X(0, OK, "success")                                                                            \
    X(-1, E_USAGE, "bad usage")                                                                    \
    X(-2, E_INPUT, "bad input")                                                                    \
    X(-3, E_RANGE, "size out of range")                                                            \
    X(-4, E_MEMORY, "out of memory")                                                               \
    X(-5, E_IO, "input or output failed")                                                          \
    X(-6, E_UNSUPPORTED, "not supported by this build")                                            \
    X(-7, E_BACKEND, "a backend call failed")                                                      \
    X(-8, E_PEER, "another rank failed")                                                           \
    X(-9, E_INTERNAL, "broken invariant")                                                          \
    X(-128, E_SIGNAL, "ended by a signal")

enum sbp_status {
#define SBP_STATUS_ENUM(code, name, text) SBP_##name = (code),
    SBP_STATUS_MAP(SBP_STATUS_ENUM)
#undef SBP_STATUS_ENUM
};

#if defined(__GNUC__)
#define SBP_MUST_USE                    __attribute__((warn_unused_result))
#define SBP_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define SBP_MUST_USE
#define SBP_PRINTF(format_at, first_at)
#endif

/* The text of the first error, for people: `file: path: what is wrong, what is legal`. */
struct sbp_diag {
    char text[1024];
};

/* Symbol ("E_INPUT") and text of a status; never NULL, also for values outside the table. */
const char *sbp_status_name(enum sbp_status status);
const char *sbp_status_text(enum sbp_status status);

/* The process exit code of a status: 0 done (also when stopped early, with what there is by then),
 * 1 the answer is no, 128 and the number of the signal that ended it, 2 everything else. */
int sbp_status_exit_code(enum sbp_status status);

/* Writes the message into diag (may be NULL; an older message is kept, the first cause counts) and
 * returns status, so that `return sbp_fail(diag, SBP_E_INPUT, ...)` reads as one thought. Control
 * characters become "\x1b", for a message quotes what came from outside. */
enum sbp_status sbp_fail(struct sbp_diag *diag, enum sbp_status status, const char *format, ...)
    SBP_PRINTF(3, 4);

/* Forwards anything but success to the caller. */
#define SBP_TRY(expression)                                                                        \
    do {                                                                                           \
        const enum sbp_status sbp_try_status_ = (expression);                                      \
        if (sbp_try_status_ != SBP_OK)                                                             \
            return sbp_try_status_;                                                                \
    } while (0)

#endif
