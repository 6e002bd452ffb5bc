/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <switchto/door.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
	struct switchto_door_message m = { { 42 } };
	int fd = switchto_door_create(-1), status;
	struct switchto_door *door = switchto_door_serve(fd, 0);
	struct timespec soon;

	/* Else a side that fails would keep the other waiting. */
	clock_gettime(CLOCK_MONOTONIC, &soon);
	soon.tv_sec += 10;
	if (!door)
		return 1;
	if (!fork()) {
		door = switchto_door_connect(fd, 0);
		_exit(!door || switchto_door_call(door, &m, &soon) || m.word[0] != 43);
	}
	if (switchto_door_wait(door, &m, &soon) != 0)
		return 2;
	m.word[0]++;
	if (switchto_door_reply(door, &m) || wait(&status) < 0 || status)
		return 3;
	printf("C, a door: %d\n", (int)m.word[0]);
	return switchto_door_close(door);
}
