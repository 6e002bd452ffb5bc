/* SPDX-License-Identifier: MIT */
/*
 * A scheduler for sched_ext that decides nothing: the kernel does what it does where
 * a scheduler has no say (one queue for all CPUs, first come, first served). As long
 * as it is registered, every SCHED_OTHER thread is of the class ext.
 */

/* Of its members only those that are set are looked for in the kernel, by name. */
struct sched_ext_ops {
	char name[128];
};

struct sched_ext_ops plain __attribute__((section(".struct_ops"), used)) = {
	.name = "plain",
};

/* Which functions of the kernel a program may call; this one calls none. */
char may_call[] __attribute__((section("license"), used)) = "GPL";
