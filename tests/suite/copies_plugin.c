// SPDX-License-Identifier: MIT
/* What copies.c opens: the library's calls, under names of the plugin's own. */
#include "copies.h"

#include <switchto/switchto.h>

__attribute__((visibility("default"))) const struct calls plugin_calls = {
	switchto_self,	       switchto_wait,	 switchto_wait_until,
	switchto_resume,       switchto_switch,	 switchto_switch_timed,
	switchto_switch_until, switchto_backend, switchto_version,
};
