#include "base/terminal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int at_least(long columns)
{
    if (columns < SBP_TERMINAL_LEAST_COLUMNS)
        return SBP_TERMINAL_LEAST_COLUMNS;
    return columns > INT_MAX ? INT_MAX : (int)columns;
}

int sbp_terminal_columns(FILE *out)
{
    const char *given = getenv("COLUMNS");
    if (given != NULL) {
        char *end;
        errno = 0;
        const long columns = strtol(given, &end, 10);
        if (end != given && *end == '\0' && errno == 0 && columns > 0)
            return at_least(columns);
    }
    struct winsize size;
    const int file = fileno(out);
    if (file < 0 || isatty(file) == 0 || ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 0;
    return at_least(size.ws_col);
}
