/* SPDX-License-Identifier: MIT */
/*
 * Failures of what the scheduling layer stands on: memory, threads, descriptors, epoll, io_uring,
 * system calls. The library switchto_sched_windows is compiled with this file before each of its
 * own, so its calls come here; those of the tests don't. All that is made here is counted, too.
 *
 * Not among them: EAGAIN of a read where there is data. Edge-triggered epoll rests on that.
 */
#ifndef TEST_FAULTS_H
#define TEST_FAULTS_H

#ifdef FAULTS_IN_LIBRARY
#define _GNU_SOURCE /* as each file does after this */
#endif

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum fault {
	FAULT_MEMORY,
	FAULT_THREAD,
	FAULT_DESCRIPTOR, /* epoll_create1, eventfd, timerfd_create */
	FAULT_EPOLL_CTL,
	FAULT_EPOLL_WAIT,
	FAULT_SETUP,	 /* io_uring_setup */
	FAULT_SUBMIT,	 /* io_uring_enter */
	FAULT_FEW,	 /* the same takes one operation of several */
	FAULT_COMPLETE,	 /* io_uring_enter for completions that had no room */
	FAULT_OPERATION, /* a completion is an error, or short */
	FAULT_CALL,	 /* recv, send, accept and so on */
	FAULT_FUTEX,	 /* a wait of a thread that is no task, or of the monitor */
	FAULT_OPEN,	 /* of the monitor, in /proc */
	FAULTS
};

/* Each call fails with a chance of 1 in @one_in. @seed, and the call's number, decide. 0: none. */
void faults_random(uint64_t seed, unsigned int one_in);
/* Of the calls of @kind, numbers @first to @last fail, the first one being 1. */
void faults_from_to(enum fault kind, unsigned long first, unsigned long last);
/* How often there was @error since then; 0: any. */
unsigned long faults_made(int error);
/* Pieces of memory, and threads, that the layer has not given back. */
long faults_left(void);

#ifdef FAULTS_IN_LIBRARY
#ifdef SWITCHTO_URING
#include <liburing.h>

int faulty_queue_init_params(unsigned int entries, struct io_uring *ring,
			     struct io_uring_params *params);
int faulty_submit(struct io_uring *ring);
int faulty_peek_cqe(struct io_uring *ring, struct io_uring_cqe **cqe);

#define io_uring_queue_init_params faulty_queue_init_params
#define io_uring_submit faulty_submit
#define io_uring_peek_cqe faulty_peek_cqe
#endif

void *faulty_malloc(size_t size);
void *faulty_calloc(size_t count, size_t size);
void *faulty_aligned_alloc(size_t align, size_t size);
void *faulty_reallocarray(void *old, size_t count, size_t size);
void faulty_free(void *memory);
int faulty_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int faulty_pthread_join(pthread_t thread, void **result);
int faulty_pthread_tryjoin_np(pthread_t thread, void **result);
int faulty_epoll_create1(int flags);
int faulty_eventfd(unsigned int count, int flags);
int faulty_timerfd_create(clockid_t clock, int flags);
int faulty_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int faulty_open(const char *path, int flags);
long faulty_syscall(long number, ...);

#define malloc faulty_malloc
#define calloc faulty_calloc
#define aligned_alloc faulty_aligned_alloc
#define reallocarray faulty_reallocarray
#define free faulty_free
#define pthread_create faulty_pthread_create
#define pthread_join faulty_pthread_join
#define pthread_tryjoin_np faulty_pthread_tryjoin_np
#define epoll_create1 faulty_epoll_create1
#define eventfd faulty_eventfd
#define timerfd_create faulty_timerfd_create
#define epoll_ctl faulty_epoll_ctl
#define open faulty_open
#define syscall faulty_syscall
#endif

#endif /* TEST_FAULTS_H */
