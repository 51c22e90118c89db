#include "base/signals.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/launcher.h"

static const struct {
    int number;
    const char *name;
} stops[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};

enum { STOPS = sizeof stops / sizeof *stops };

static bool set_action(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    return sigaction(number, &action, NULL) == 0;
}

static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

enum sbp_status sbp_signals_catch(void (*handler)(int), struct sbp_diag *diag)
{
    bool set = set_action(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < STOPS; i++)
        if (stops[i].number != SIGHUP || !is_ignored(SIGHUP))
            set = set_action(stops[i].number, handler) && set;
    return set ? SBP_OK : sbp_fail(diag, SBP_E_IO, "signals: %s", strerror(errno));
}

void sbp_signals_restore(void)
{
    for (int i = 0; i < STOPS; i++)
        if (stops[i].number != SIGHUP || !is_ignored(SIGHUP))
            (void)set_action(stops[i].number, SIG_DFL);
}

void sbp_signals_hold(sigset_t *before)
{
    sigset_t held;
    (void)sigemptyset(&held);
    for (int i = 0; i < STOPS; i++)
        (void)sigaddset(&held, stops[i].number);
    (void)pthread_sigmask(SIG_BLOCK, &held, before); /* fails on a wrong first argument alone */
}

void sbp_signals_release(const sigset_t *before)
{
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

const char *sbp_signals_name(int number)
{
    for (int i = 0; i < STOPS; i++)
        if (stops[i].number == number)
            return stops[i].name;
    return "signal";
}

/* ---- what a handler says: stdio is not for handlers ------------------------------------------ */

struct line {
    char text[256];
    size_t length;
};

static void add(struct line *line, const char *text)
{
    while (*text != '\0' && line->length < sizeof line->text)
        line->text[line->length++] = *text++;
}

static void add_count(struct line *line, int count)
{
    char digits[16], *first = digits + sizeof digits - 1;
    *first = '\0';
    do {
        *--first = (char)('0' + count % 10);
        count /= 10;
    } while (count > 0);
    add(line, first);
}

void sbp_signals_report(const char *program, struct sbp_done *progress, const char *what)
{
    struct line line = {.length = 0};
    add(&line, program);
    add(&line, SBP_SIGNAL_MARK);
    if (progress->total > 0) {
        add_count(&line, progress->done);
        add(&line, " of ");
        add_count(&line, progress->total);
        add(&line, " ");
        add(&line, what);
    } else {
        add(&line, "nothing is finished");
    }
    add(&line, "\n");
    const ssize_t written = write(STDERR_FILENO, line.text, line.length);
    (void)written; /* there is nobody to tell */
}

bool sbp_signals_answer(int number, const char *program, struct sbp_done *progress,
                        const char *what)
{
    if (progress->total > 0 && progress->done == progress->total) {
        if (number != SBP_SIGNAL_ASKS)
            sbp_signals_restore();
        return false;
    }
    if (sbp_launcher_rank() <= 0 && !atomic_exchange(&progress->reported, 1))
        sbp_signals_report(program, progress, what);
    return number != SBP_SIGNAL_ASKS;
}

enum sbp_status sbp_signals_status(int number)
{
    return (enum sbp_status)((int)SBP_E_SIGNAL - number);
}
