/* Training that reads its data from a file, as OneFlow's data pipeline does (Yuan et al. 2021,
 * section 6.1): a reader, preprocessing, a copy to the device and the training step are actors on
 * lanes of their own, with two slots for each of their results. Nothing else makes it a pipeline.
 *
 * The file holds records of bytes. Preprocessing brightens and normalises them to floats; a step
 * trains one matrix to give each record as it is, by least squares.
 */
#ifndef SBP_TESTS_SUPPORT_DATA_PIPELINE_H
#define SBP_TESTS_SUPPORT_DATA_PIPELINE_H

#include "executor/actor/actor_run.h"
#include "kernels/kernels.h"

enum data_stage { DATA_READ, DATA_PREPARE, DATA_COPY, DATA_TRAIN, DATA_STAGES };

struct data_shape {
    int batch, features; /* records of a step; bytes of a record */
    int steps;
};

struct data_pipeline {
    struct data_shape shape;
    const struct sbp_device_ops *device;
    const struct sbp_kernels *kernels;
    int file;                    /* descriptor */
    void *bytes, *host, *batch;  /* (batch, features) of a step that runs in turn: as read, as
                                    prepared, on the device */
    float *weights, *gradient;   /* (features, features) on the device */
    float *output;               /* (batch, features) */
    double spent_s[DATA_STAGES]; /* thread CPU time of all steps */
};

/* A file of random bytes in the temporary folder, and first weights of 0. E_IO, E_MEMORY; close
 * either way. */
enum sbp_status data_pipeline_open(struct data_pipeline *pipeline, const struct data_shape *shape,
                                   struct sbp_diag *diag) SBP_MUST_USE;
void data_pipeline_close(struct data_pipeline *pipeline);
/* Sets weights and times back to 0. */
void data_pipeline_reset(struct data_pipeline *pipeline);

/* All steps: as actors, with so many slots; one stage after the other; and training alone, on one
 * batch that stays (synthetic data). As the stages fail. */
enum sbp_status data_pipeline_run(struct data_pipeline *pipeline, int slots,
                                  struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status data_pipeline_in_turn(struct data_pipeline *pipeline,
                                      struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status data_pipeline_synthetic(struct data_pipeline *pipeline,
                                        struct sbp_diag *diag) SBP_MUST_USE;

#endif
