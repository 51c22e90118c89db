/* sbplan: plans how to split the training of a model over the devices of a cluster. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "planner/commands/commands.h"

/* The heap grows, and is given back, by this much at once. Arenas of megabytes come and go
 * thousands of times, and new pages from the system cost more than the work that is done in them.
 */
enum { HEAP_STEP_BYTES = 64 << 20 };

/* A handler may write it, and all threads read it. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "integers are written without a lock");
static atomic_int stop;

/* The first interrupt asks for the best so far; the next one ends the program (SA_RESETHAND). */
static void on_interrupt(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    (void)mallopt(M_TOP_PAD, HEAP_STEP_BYTES); /* slower without, no worse */
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, &action, NULL) != 0)
        (void)fprintf(stderr, "sbplan: an interrupt will end this at once: %s\n", strerror(errno));
    enum sbp_status status = sbp_commands_run(argc, argv, &stop, &diag);
    if (fflush(stdout) != 0 || ferror(stdout))
        status = sbp_fail(&diag, SBP_E_IO, "sbplan: standard output: %s", strerror(errno));
    if (status < 0)
        (void)fprintf(stderr, "%s\n", diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
