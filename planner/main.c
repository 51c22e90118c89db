/* sbplan: plans how to split the training of a model over the devices of a cluster. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/signals.h"
#include "planner/commands/commands.h"

/* The heap grows, and is given back, by this much at once. Arenas of megabytes come and go
 * thousands of times, and new pages from the system cost more than the work that is done in them.
 */
enum { HEAP_STEP_BYTES = 64 << 20 };

static atomic_int stop; /* the number of the first signal */

/* The first signal asks for the best so far; the next one, of whatever kind, ends the program. */
static void on_signal(int number)
{
    stop = number;
    sbp_signals_restore();
}

int main(int argc, char **argv)
{
    struct sbp_diag diag = {0};
    (void)mallopt(M_TOP_PAD, HEAP_STEP_BYTES); /* slower without, no worse */
    enum sbp_status status = sbp_signals_catch(on_signal, &diag);
    if (status == SBP_OK)
        status = sbp_commands_run(argc, argv, &stop, &diag);
    if (fflush(stdout) != 0 || ferror(stdout))
        status = sbp_fail(&diag, SBP_E_IO, "sbplan: standard output: %s", strerror(errno));
    if (status < 0)
        (void)fprintf(stderr, "%s\n", diag.text[0] != '\0' ? diag.text : sbp_status_text(status));
    return sbp_status_exit_code(status);
}
