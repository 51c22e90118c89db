/* A kernel that reads beyond a buffer, under AddressSanitizer, which ends the program. */
#include <stdlib.h>

#include "tests/gpu/planted.h"

void sbp_planted_note(int block)
{
    (void)block;
}

int main(void)
{
    float *from = calloc(128, sizeof *from), *to = calloc(128, sizeof *to);
    if (from != NULL && to != NULL)
        sbp_planted_run(PLANTED_BEYOND_BUFFER, to, from);
    free(from);
    free(to);
    return 0;
}
