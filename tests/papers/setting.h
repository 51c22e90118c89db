/* Models and clusters of the papers. What a program cannot go on without ends it with a message. */
#ifndef SBP_TESTS_PAPERS_SETTING_H
#define SBP_TESTS_PAPERS_SETTING_H

#include "costmodel/model/graph.h"
#include "costmodel/cluster/mesh.h"

struct cJSON;

/* One level: alpha 1e-5 s, beta 1e-10 s a byte, fp32 1e13 flops/s. */
struct sbp_cluster setting_cluster(int64_t devices);
/* One of configs/clusters. */
/* Without its tables of rates: they are freed. */
void setting_cluster_named(const char *name, struct sbp_cluster *cluster);
/* All products reach this share of the peak. */
void setting_cluster_efficiency(double share, struct sbp_cluster *cluster);
struct sbp_mesh setting_mesh(const struct sbp_cluster *cluster);

struct setting_model {
    struct cJSON *tree;
    struct sbp_graph graph;
};
/* Reads a model from the text of a model file. */
void setting_model_read(struct setting_model *model, const char *format, ...) SBP_PRINTF(2, 3);
void setting_model_drop(struct setting_model *model);

/* A GPT in mixed precision, 512 tokens a sequence, 51200 words (Myelin, section VI). */
struct setting_gpt {
    int layers, hidden, heads;
};
#define SETTING_GPT_SEQUENCE 512
#define SETTING_GPT_VOCAB    51200
void setting_gpt_read(struct setting_model *model, const struct setting_gpt *gpt, int batch);

/* Path of a file of measurements that lies beside the project, in ../shared. */
void setting_shared_path(const char *name, char *path, size_t size);

/* Ends the program unless the status is SBP_OK. */
void setting_must(enum sbp_status status, const struct sbp_diag *diag);
/* The same of a file of configs/runs. */
void setting_runs_path(const char *name, char *path, size_t size);

#endif
