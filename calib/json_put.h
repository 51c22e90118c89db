/* Building JSON without a check a line: once memory is out, *failed is set and nothing happens. */
#ifndef SBP_CALIB_JSON_PUT_H
#define SBP_CALIB_JSON_PUT_H

#include <stdbool.h>

struct cJSON;

/* All take NULL for an object that could not be made. */
void sbp_json_put(struct cJSON *object, const char *key, struct cJSON *item, bool *failed);
/* Six significant digits: no measurement has more. */
void sbp_json_put_measured(struct cJSON *object, const char *key, double value, bool *failed);
void sbp_json_put_number(struct cJSON *object, const char *key, double value, bool *failed);
/* Nothing for NULL. */
void sbp_json_put_text(struct cJSON *object, const char *key, const char *text, bool *failed);
struct cJSON *sbp_json_put_object(struct cJSON *object, const char *key, bool *failed);
struct cJSON *sbp_json_put_array(struct cJSON *object, const char *key, bool *failed);
struct cJSON *sbp_json_push_object(struct cJSON *array, bool *failed);
void sbp_json_push_text(struct cJSON *array, const char *text, bool *failed);

#endif
