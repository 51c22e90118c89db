#include "calib/samples/system.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/launcher.h"
#include "base/text.h"

#define BITS 8.0

/* --- settings --- */

static bool is_setting(const char *entry)
{
    static const char *const prefixes[] = {"NCCL_",
                                           "RCCL_",
                                           "UCX_",
                                           "UCC_",
                                           "FI_",
                                           "OMPI_MCA_btl",
                                           "OMPI_MCA_pml",
                                           "OMPI_MCA_mtl",
                                           "OMPI_MCA_coll",
                                           "OMPI_MCA_mpi_",
                                           "OMPI_MCA_osc",
                                           "OMPI_MCA_hwloc",
                                           "OMPI_MCA_rmaps",
                                           "MPICH_",
                                           "I_MPI_",
                                           "MV2_",
                                           "OMP_",
                                           "OPENBLAS_",
                                           "MKL_NUM_",
                                           "GOTO_NUM_",
                                           "CUDA_VISIBLE_",
                                           "CUDA_DEVICE_",
                                           "SLURM_CPU_BIND=",
                                           NULL};
    /* Known settings with these words in their names may hold secrets of a site. */
    static const char *const secret[] = {"TOKEN", "SECRET", "KEY", "PASS", NULL};
    const size_t name = strcspn(entry, "=");
    for (int i = 0; secret[i] != NULL; i++) {
        const char *found = strstr(entry, secret[i]);
        if (found != NULL && found < entry + name)
            return false;
    }
    for (int i = 0; prefixes[i] != NULL; i++)
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* The next setting by name behind `after` (NULL: the first); NULL: none. */
static const char *next_setting(char *const *environment, const char *after)
{
    const char *next = NULL;
    for (; *environment != NULL; environment++)
        if (is_setting(*environment) && (after == NULL || strcmp(*environment, after) > 0) &&
            (next == NULL || strcmp(*environment, next) < 0))
            next = *environment;
    return next;
}

void sbp_system_settings(char *const *environment, char *text, int size)
{
    static const char rest[] = "...";
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = next_setting(environment, NULL); at != NULL;
         at = next_setting(environment, at)) {
        const size_t length = strcspn(at, "\n");
        if (used + length + 1 + sizeof rest > (size_t)size) {
            (void)snprintf(text + used, (size_t)size - used, "%s", rest);
            return;
        }
        used += (size_t)snprintf(text + used, (size_t)size - used, "%s%.*s", used > 0 ? "\n" : "",
                                 (int)length, at);
    }
}

/* --- files below /sys and /proc --- */

/* The first line of a file; false where it cannot be read or is empty. */
static bool read_line(const char *path, char *line, int size)
{
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return false;
    const bool is_there = fgets(line, size, in) != NULL;
    (void)fclose(in); /* nothing was written */
    if (!is_there)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return line[0] != '\0';
}

static void append(char *text, int size, const char *what, const char *value)
{
    const size_t used = strlen(text);
    (void)snprintf(text + used, (size_t)size - used, "%s%s %s", used > 0 ? ", " : "", what, value);
}

/* Calls `visit` for each entry of a folder below root. */
static void for_each(const char *root, const char *folder, void *context,
                     void (*visit)(void *context, const char *path, const char *name))
{
    char path[512], entry_path[1024];
    (void)snprintf(path, sizeof path, "%s%s", root, folder);
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    for (const struct dirent *at = readdir(directory); at != NULL; at = readdir(directory)) {
        if (at->d_name[0] == '.')
            continue;
        (void)snprintf(entry_path, sizeof entry_path, "%s/%s", path, at->d_name);
        visit(context, entry_path, at->d_name);
    }
    (void)closedir(directory); /* nothing was written */
}

struct text_of {
    char *text;
    int size;
};

static void add_firmware(void *context, const char *path, const char *name)
{
    const struct text_of *of = context;
    char file[1100], line[64], what[96];
    (void)snprintf(file, sizeof file, "%s/fw_ver", path);
    if (!read_line(file, line, sizeof line))
        return;
    (void)snprintf(what, sizeof what, "%.40s firmware", name);
    append(of->text, of->size, what, line);
}

void sbp_system_driver(const char *root, char *text, int size)
{
    char path[512], line[160];
    text[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/sys/module/nvidia/version", root);
    if (read_line(path, line, sizeof line))
        append(text, size, "nvidia", line);
    (void)snprintf(path, sizeof path, "%s/sys/module/mlx5_core/version", root);
    if (read_line(path, line, sizeof line))
        append(text, size, "mlx5_core", line);
    struct text_of of = {text, size};
    for_each(root, "/sys/class/infiniband", &of, add_firmware);
}

struct fastest {
    double bytes_per_s;
    char *name;
    int size;
};

static void take_rate(struct fastest *fastest, double bits_per_s, const char *name)
{
    if (!(bits_per_s / BITS > fastest->bytes_per_s))
        return;
    fastest->bytes_per_s = bits_per_s / BITS;
    (void)snprintf(fastest->name, (size_t)fastest->size, "%s", name);
}

/* "100 Gb/sec (4X EDR)" */
static void visit_adapter(void *context, const char *path, const char *name)
{
    char file[1100], line[64];
    (void)snprintf(file, sizeof file, "%s/ports/1/rate", path);
    if (read_line(file, line, sizeof line) && strstr(line, "Gb/sec") != NULL)
        take_rate(context, strtod(line, NULL) * 1e9, name);
}

/* Reads megabits a second; interfaces that are down say -1 or nothing. */
static void visit_interface(void *context, const char *path, const char *name)
{
    char file[1100], line[64];
    (void)snprintf(file, sizeof file, "%s/operstate", path);
    if (strcmp(name, "lo") == 0 ||
        (read_line(file, line, sizeof line) && strcmp(line, "down") == 0))
        return;
    (void)snprintf(file, sizeof file, "%s/speed", path);
    if (read_line(file, line, sizeof line))
        take_rate(context, strtod(line, NULL) * 1e6, name);
}

bool sbp_system_network(const char *root, double *bytes_per_s, char *name, int size)
{
    struct fastest fastest = {0, name, size};
    name[0] = '\0';
    for_each(root, "/sys/class/infiniband", &fastest, visit_adapter);
    if (fastest.bytes_per_s == 0)
        for_each(root, "/sys/class/net", &fastest, visit_interface);
    *bytes_per_s = fastest.bytes_per_s;
    return fastest.bytes_per_s > 0;
}

void sbp_system_binding(char *text, int size)
{
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof set, &set) != 0 || online < 1)
        (void)snprintf(text, (size_t)size, "unknown");
    else
        (void)snprintf(text, (size_t)size, "%d of %ld cores a rank", CPU_COUNT(&set), online);
}

/* --- launchers --- */

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value == NULL ? "" : value;
}

/* mpirun below Slurm starts its daemons by srun, too, but not as many tasks as there are ranks. */
void sbp_system_launcher(int ranks, char *text, int size)
{
    int64_t tasks;
    const char *kind = value_of("SLURM_MPI_TYPE");
    if (sbp_launcher_rank() < 0)
        text[0] = '\0';
    else if (sbp_parse_int64(value_of("SLURM_STEP_NUM_TASKS"), &tasks) && tasks == ranks)
        (void)snprintf(text, (size_t)size, "srun%s%.32s", kind[0] == '\0' ? "" : " --mpi=", kind);
    else
        (void)snprintf(text, (size_t)size, "mpirun");
}

void sbp_system_job(char *text, int size)
{
    const char *job = value_of("SLURM_JOB_ID"), *step = value_of("SLURM_STEP_ID");
    const char *partition = value_of("SLURM_JOB_PARTITION");
    text[0] = '\0';
    if (job[0] != '\0')
        (void)snprintf(text, (size_t)size, "Slurm %.16s%s%.16s%s%.32s", job,
                       step[0] == '\0' ? "" : ".", step, partition[0] == '\0' ? "" : ", partition ",
                       partition);
}
