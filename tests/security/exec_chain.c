// SPDX-License-Identifier: MIT
/*
 * usage: exec_chain N
 * Swaps once, so that the kernel keeps what it keeps of who swaps, and begins anew by
 * execve(), N times. A program of its own, and static: it is over quickly.
 */
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* After <linux/futex.h> */
#include "futex_swap.h"

int main(int argc, char **argv)
{
	int left = argc == 2 ? atoi(argv[1]) : 0;
	uint32_t own = 0;
	char text[16];

	/* A value that does not match: it returns at once. */
	syscall(SYS_futex, &own, FUTEX_SWAP | FUTEX_PRIVATE_FLAG, 1, NULL, &own, 0);
	if (left <= 0)
		return EXIT_SUCCESS;
	snprintf(text, sizeof(text), "%d", left - 1);
	execl("/proc/self/exe", argv[0], text, (char *)NULL);
	perror("exec_chain: execve");
	return EXIT_FAILURE;
}
