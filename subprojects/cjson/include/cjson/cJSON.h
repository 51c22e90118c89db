/* Users include <cjson/cJSON.h>, as an installed cJSON has it. */
#include "../../cJSON.h"
