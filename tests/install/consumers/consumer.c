/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include <switchto/switchto.h>

int main(void)
{
	char version[40];

	if (!switchto_backend() || switchto_switch(switchto_self()) != switchto_self())
		return 1;
	snprintf(version, sizeof(version), "%d.%d.%d", SWITCHTO_VERSION_MAJOR,
		 SWITCHTO_VERSION_MINOR, SWITCHTO_VERSION_PATCH);
	if (strcmp(switchto_version(), version) != 0)
		return 2;
	printf("C: %s\n", switchto_backend());
	return 0;
}
