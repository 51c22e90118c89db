#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

const char *sbp_status_name(enum sbp_status status)
{
    switch (status) {
#define STATUS_NAME(code, name, text)                                                              \
    case SBP_##name:                                                                               \
        return #name;
        SBP_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *sbp_status_text(enum sbp_status status)
{
    switch (status) {
#define STATUS_TEXT(code, name, text)                                                              \
    case SBP_##name:                                                                               \
        return text;
        SBP_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

int sbp_status_exit_code(enum sbp_status status)
{
    /* A search that was stopped early still delivered its best plan, and says so in the plan. */
    if (status == SBP_OK || status == SBP_STOPPED)
        return 0;
    if (status <= SBP_E_SIGNAL)
        return -(int)status;
    return status == SBP_NO ? 1 : 2;
}

enum sbp_status sbp_fail(struct sbp_diag *diag, enum sbp_status status, const char *format, ...)
{
    if (diag == NULL || diag->text[0] != '\0')
        return status;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(diag->text, sizeof diag->text, format, arguments);
    va_end(arguments);
    if (length < 0)
        (void)snprintf(diag->text, sizeof diag->text, "%s", sbp_status_text(status));
    sbp_text_show(diag->text, sizeof diag->text);
    return status;
}
