/* Loads the module from beside the program, where it is built, or from where it is installed. */
#include "calib/measure/gpu.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define MODULE "sbplan-nccl.so"

/* Finds the module in the first place that holds a file of its name. */
static bool find_module(char *path, size_t size)
{
    static const char *const places[] = {"", SBP_MODULE_FOLDER};
    char folder[PATH_MAX];
    if (!sbp_file_program_folder(folder, sizeof folder))
        return false;
    for (int i = 0; i < 2; i++) {
        const int length = snprintf(path, size, "%s/%s" MODULE, folder, places[i]);
        if (length > 0 && (size_t)length < size && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

enum sbp_status sbp_gpu_load(const struct sbp_gpu **gpu, struct sbp_diag *diag)
{
    char path[PATH_MAX];
    *gpu = NULL;
    if (!find_module(path, sizeof path))
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "backend nccl: no " MODULE
                        " lies beside the program or in " SBP_MODULE_FOLDER " from there");
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed */
    if (module == NULL)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "backend nccl: cannot be loaded: %s", dlerror());
    const struct sbp_gpu *found = dlsym(module, "sbp_gpu");
    if (found == NULL)
        return sbp_fail(diag, SBP_E_UNSUPPORTED, "backend nccl: %s", dlerror());
    if (strcmp(found->version, SBP_VERSION) != 0)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "backend nccl: %s is of version %s, this program of " SBP_VERSION, path,
                        found->version);
    *gpu = found;
    return SBP_OK;
}
