/* SPDX-License-Identifier: MIT */
/*
 * Static probes (USDT) for perf, bpftrace, SystemTap and gdb: docs/debugging.md. A probe
 * is one nop, and a note in the ELF file that says where its argument is. There is no
 * semaphore, hence no branch. Every tracer knows the calling thread, so that is no argument.
 *
 *	switch(to)	the caller has resumed TID @to, and waits from now on
 *	wait()		the caller waits from now on
 *	resume(to)	the caller has resumed TID @to
 *	wait_return(by)	TID @by has ended the caller's wait or switch; -1: a timeout has
 *	door_call(to)	the caller calls the server of a door, TID @to
 *	door_reply(to)	the caller answers TID @to at a door, and waits for the next call
 *
 * A wait that finds a pending resume returns without the probe wait. The probes of the scheduling
 * layer are in sched/types.h.
 *
 * A probe stands in both branches of a condition rather than in front of it: in front
 * it would keep the compiler from joining the condition with an earlier one.
 */
#ifndef SWITCHTO_PROBES_H
#define SWITCHTO_PROBES_H

#ifndef PROBE_PROVIDER
#define PROBE_PROVIDER switchto
#endif

#ifdef SWITCHTO_PROBES /* <sys/sdt.h> is there: CMakeLists.txt */
/* No argument is written to memory: clang does that if it may choose. */
#define STAP_SDT_ARG_CONSTRAINT nr
#include <sys/sdt.h>
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpedantic" /* sdt.h's */
#endif
#define probe(name) DTRACE_PROBE(PROBE_PROVIDER, name)
#define probe1(name, a) DTRACE_PROBE1(PROBE_PROVIDER, name, a)
#define probe2(name, a, b) DTRACE_PROBE2(PROBE_PROVIDER, name, a, b)
#else
#define probe(name) ((void)0)
#define probe1(name, a) ((void)(a))
#define probe2(name, a, b) ((void)(a), (void)(b))
#endif

#define probe_tid(name, tid) probe1(name, tid)

#endif /* SWITCHTO_PROBES_H */
