/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <switchto/switchto.h>

int main(void)
{
	if (!switchto_backend() || switchto_switch(switchto_self()) != switchto_self())
		return 1;
	printf("C: %s\n", switchto_backend());
	return 0;
}
