#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* Finds the module in the first place that holds a file of its name. */
static bool find_module(const struct sbp_module *module, char *path, size_t size)
{
    const char *const places[] = {"", module->folder};
    char folder[PATH_MAX];
    if (!sbp_file_program_folder(folder, sizeof folder))
        return false;
    for (int i = 0; i < 2; i++) {
        const int length = snprintf(path, size, "%s/%s%s", folder, places[i], module->file);
        if (length > 0 && (size_t)length < size && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

enum sbp_status sbp_module_load(const struct sbp_module *module, const void **found,
                                struct sbp_diag *diag)
{
    char path[PATH_MAX];
    *found = NULL;
    if (!find_module(module, path, sizeof path))
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "%s: no %s lies beside the program or in %s from there", module->what,
                        module->file, module->folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (library == NULL)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "%s: cannot be loaded: %s", module->what,
                        dlerror());
    const char *const *table = dlsym(library, module->symbol);
    if (table == NULL)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "%s: %s", module->what, dlerror());
    if (strcmp(*table, SBP_VERSION) != 0)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "%s: %s is of version %s, this program of " SBP_VERSION, module->what, path,
                        *table);
    *found = table;
    return SBP_OK;
}
