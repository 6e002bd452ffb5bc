/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CONTEXT_H
#define BENCH_CONTEXT_H

/*
 * Adds to the results what a reader must know to compare them with others:
 * the kernel, the machine, and which instrument made the figures.
 *
 * A guest can't know three of these about itself. Whoever starts it sets:
 * SWITCHTO_ACCEL, the accelerator; SWITCHTO_HOST_CPU, the host's processor;
 * SWITCHTO_UNIT=insn, that a nanosecond on this clock is an instruction.
 *
 * @parked: how many threads wait beside those of the rows.
 *
 * Returns nullptr, or what is wrong with one of them.
 */
const char *add_context(const char *backend, long parked);

#endif
