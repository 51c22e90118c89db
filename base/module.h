/* Modules: parts of a program in a library of their own, which is loaded when it is asked for, so
 * that programs start on machines that lack what the module needs.
 */
#ifndef SBP_BASE_MODULE_H
#define SBP_BASE_MODULE_H

#include "base/status.h"

struct sbp_module {
    const char *what;   /* "backend nccl": begins messages */
    const char *file;   /* of the module; beside the program, or */
    const char *folder; /* where it is installed, from the program's folder, with a / at the end */
    const char *symbol; /* its table, which begins with a char * to the version it was built with */
};

/* *found: the module's table, which lives as long as the process. E_UNSUPPORTED: no such file, a
 * library that it needs is not on this machine, or it is of another version than the program. */
enum sbp_status sbp_module_load(const struct sbp_module *module, const void **found,
                                struct sbp_diag *diag) SBP_MUST_USE;

#endif
