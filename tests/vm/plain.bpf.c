/* SPDX-License-Identifier: MIT */
/*
 * A scheduler for sched_ext that decides nothing, so the kernel uses its defaults (one
 * queue for all CPUs, first come, first served). While it is registered, every
 * SCHED_OTHER thread is in the class ext.
 */

/* Only the members that are set are looked up in the kernel, by name. */
struct sched_ext_ops {
	char name[128];
};

struct sched_ext_ops plain __attribute__((section(".struct_ops"), used)) = {
	.name = "plain",
};

/* Which functions of the kernel a program may call; this one calls none. */
char may_call[] __attribute__((section("license"), used)) = "GPL";
