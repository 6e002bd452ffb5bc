// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "trace.h"
#include "mark.h"
#include "sync.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

/* The file: this, the lanes' counters, and the events. In the byte order of the machine. */
struct head {
	char magic[8];
	uint32_t lanes, places; /* of each lane: a power of two */
	uint64_t ticks;		/* 1: times are the counter's of the CPU; 0: ns */
	_Atomic uint64_t start, start_ns, start_date; /* the same time: ticks, ns, ns of the date */
	_Atomic uint64_t last, last_ns;		      /* a later one */
	_Atomic uint64_t stop;			      /* 0: it has not been stopped */
	uint32_t pid, unused;
	char comm[16];
};

enum { PAGE = 4096, COUNTER_SIZE = 64, EVENT_WORDS = 4, EVENT_SIZE = 32, LEAST_PLACES = 64 };
enum { NAMES, OUTSIDE, FIRST_SLOT, MOST_SLOTS = 64 };
enum { DEFAULT_SIZE = 64 << 20 };

struct trace {
	struct trace *next; /* the one before */
	struct head *head;
	size_t size;
	bool ticks;
	struct own_file file;
	uint32_t slots; /* lanes of them: a power of two */
	struct trace_lane lane[];
};

_Atomic(struct trace *) switchto_trace;
static struct trace *all_traces;
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- events --- */

static inline uint64_t counter(void)
{
#ifdef __x86_64__
	/* What was read before is not to be from a later time. */
	_mm_lfence();
	return __rdtsc();
#elif defined(__aarch64__)
	uint64_t now;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(now) : : "memory");
	return now;
#else
	return (uint64_t)switchto_now();
#endif
}

static ALWAYS_INLINE void put_at(uint64_t time, const struct trace_lane *lane, uint64_t slot,
				 uint64_t what, uint64_t argument)
{
	const uint64_t i = atomic_fetch_add_explicit(lane->next, 1, memory_order_relaxed);
	const uint64_t rest = time ^ what ^ argument;
	_Atomic uint64_t *at = lane->places + (i & lane->mask) * EVENT_WORDS;

	atomic_store_explicit(&at[0], time, memory_order_relaxed);
	atomic_store_explicit(&at[1], what, memory_order_relaxed);
	atomic_store_explicit(&at[2], argument, memory_order_relaxed);
	/* Says that the rest is that of event @i, whole: neither an older one, nor a part of one. */
	atomic_store_explicit(&at[3], (i << 24 | slot) ^ rest ^ rest << 40, memory_order_relaxed);
}

static __attribute__((noinline, cold)) void *put_in_ns(const struct trace_lane *lane, uint64_t slot,
						       uint64_t what, uint64_t argument,
						       void *result)
{
	put_at((uint64_t)switchto_now(), lane, slot, what, argument);
	return result;
}

/*
 * @what: the kind << 8, and the detail. Returns @result: so, and with two branches rather than one for
 * the time, no register is saved for a call.
 */
static ALWAYS_INLINE void *put(const struct trace_lane *lane, uint64_t slot, uint64_t what,
			       const void *task, uint64_t argument, void *result)
{
	what |= (uint64_t)(uintptr_t)task << 12;
	if (unlikely(lane->in_ns))
		return put_in_ns(lane, slot, what, argument, result);
	put_at(counter(), lane, slot, what, argument);
	return result;
}

static inline const struct trace_lane *lane_of(const struct trace *trace, const struct slot *slot)
{
	return &trace->lane[FIRST_SLOT + (slot->number & (trace->slots - 1))];
}

/* A thread that has lost its slot may write to the slot's lane as well: to reserve a place is atomic. */
static const struct trace_lane *lane_of_caller(const struct trace *trace)
{
	const struct worker *me = switchto_current;

	return me && me->slot ? lane_of(trace, me->slot) : &trace->lane[OUTSIDE];
}

void switchto_trace_event(const struct slot *slot, enum trace_kind kind, const void *task,
			  uint64_t argument)
{
	const struct trace *trace = atomic_load(&switchto_trace);

	if (trace)
		put(lane_of_caller(trace), slot->number, (uint64_t)kind << 8, task, argument, NULL);
}

static inline uint64_t task_or_tid(const struct worker *me)
{
	return likely(me->task != NULL) ? (uintptr_t)me->task : (uint64_t)me->tid;
}

/* The calling task; or another thread's TID. */
static uint64_t caller(void)
{
	const struct worker *me = switchto_current;

	return likely(me != NULL) ? task_or_tid(me) : (uint64_t)gettid();
}

/* TRACE_READY, and why: with the error of the wait that ended, if @task was in one. */
static inline unsigned int why_ready(const struct switchto_task *task, enum switchto_reason why)
{
	const int error = why == SWITCHTO_WOKEN ? task->woken_by : 0;
	const unsigned int event = TRACE_READY << 8 | why;

	if (likely(!error))
		return event;
	return event | (error == ETIMEDOUT ? TRACE_TIMED_OUT :
			error == ECANCELED ? TRACE_CANCELLED :
					     TRACE_CLOSED);
}

void switchto_trace_pushed(const struct slot *slot, const struct switchto_task *task,
			   enum switchto_reason why)
{
	const struct trace *trace = atomic_load(&switchto_trace);
	struct worker *me = switchto_current;

	if (trace)
		put(lane_of_caller(trace), slot->number, why_ready(task, why), task,
		    me && me->slot && is_inside(me) && me->slot->traced.polls ? 0 : caller(), NULL);
}

void switchto_trace_sleeps(const struct switchto_task *task, uint32_t on, const void *object)
{
	const uint32_t what = on & ~(uint32_t)ON_STATE;
	const struct slot *slot = task->slot;
	uint64_t argument = 0;

	if (what == ON_FD)
		argument = (uint64_t)__atomic_load_n(&((const struct mark *)object)->fd,
						     __ATOMIC_RELAXED);
	else if (what >= ON_MUTEX && what <= ON_CHAN)
		argument = (uintptr_t)(on & LOCKING ? object : awaited(object));
	put(slot->lane, slot->number, TRACE_SLEEP << 8 | on >> 8, task, argument, NULL);
}

/* --- slots --- */

static __attribute__((noinline, cold)) void put_ready_by_tid(const struct slot *slot,
							     const struct switchto_task *task,
							     enum switchto_reason why)
{
	put(slot->lane, slot->number, why_ready(task, why), task, (uint64_t)gettid(), NULL);
}

/* Nobody else sees the queue meanwhile, so it may come last: it takes no registers from the rest. */
static ALWAYS_INLINE void put_ready(const struct switchto_task *task, enum switchto_reason why)
{
	const struct worker *me = switchto_current;
	const struct slot *slot = task->slot;

	if (unlikely(!me) && !slot->traced.polls)
		put_ready_by_tid(slot, task, why);
	else
		put(slot->lane, slot->number, why_ready(task, why), task,
		    slot->traced.polls ? 0 : task_or_tid(me), NULL);
}

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	const struct switchto_task *task = (const struct switchto_task *)entry;

	task->slot->traced.enqueue(queue, entry, why);
	put_ready(task, why);
}

static void enqueue_fifo(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	fifo_enqueue(queue, entry, why);
	put_ready((const struct switchto_task *)entry, why);
}

int switchto_trace_woken(struct worker *me, struct switchto_task *task)
{
	struct slot *slot = me->slot;

	fifo_enqueue(slot->queue, &task->entry, SWITCHTO_WOKEN);
	change_ready(slot, 1);
	me = put(slot->lane, slot->number, why_ready(task, SWITCHTO_WOKEN), task, task_or_tid(me),
		 me);
	leave(me);
	return 0;
}

__attribute__((noinline)) struct switchto_task *switchto_trace_run(struct slot *slot,
								   struct switchto_task *task)
{
	return put(slot->lane, slot->number, TRACE_RUN << 8, task,
		   (uint64_t)atomic_load_explicit(&slot->tid, memory_order_relaxed), task);
}

static struct switchto_entry *pick(void *queue)
{
	struct slot *slot = switchto_current->slot;
	struct switchto_task *task = (struct switchto_task *)slot->traced.pick(queue);

	/* The caller of a step is no task. */
	if (task && task->sched)
		switchto_trace_run(slot, task);
	return (struct switchto_entry *)task;
}

static void put_text(const struct trace *trace, const struct slot *slot, const void *subject,
		     unsigned int what, const char *text)
{
	char padded[16] = "";
	uint64_t part;

	memcpy(padded, text, strnlen(text, sizeof(padded) - 1));
	for (unsigned int i = 0; i < 2; i++) {
		memcpy(&part, padded + i * sizeof(part), sizeof(part));
		put(&trace->lane[NAMES], slot->number, TRACE_TEXT << 8 | (what + i), subject, part,
		    NULL);
	}
}

static void put_name(const struct trace *trace, const struct switchto_task *task)
{
	char text[16];

	for (unsigned int i = 0; i < 2; i++) {
		const uint64_t part = atomic_load(&task->name[i]);

		memcpy(text + i * sizeof(part), &part, sizeof(part));
	}
	put_text(trace, __atomic_load_n(&task->slot, __ATOMIC_RELAXED), task, TRACE_TASK, text);
}

void switchto_trace_name(const struct switchto_task *task)
{
	const struct trace *trace = atomic_load(&switchto_trace);

	if (trace)
		put_name(trace, task);
}

static void put_slot(const struct trace *trace, const struct slot *slot, bool begins)
{
	const struct switchto_sched *sched = slot->sched;

	const struct switchto_policy *policy = sched->wrapped ? sched->wrapped : sched->policy;

	put(&trace->lane[NAMES], slot->number, TRACE_SLOT << 8 | begins, sched,
	    (uint64_t)(slot - sched->slot), NULL);
	put_text(trace, slot, sched, TRACE_POLICY, policy->name ? policy->name : "");
	put_text(trace, slot, sched, TRACE_SCHED, sched->name);
}

static unsigned int length(const struct list *list)
{
	unsigned int n = 0;

	for (const struct switchto_entry *at = list->first; at; at = at->next)
		n++;
	return n;
}

static void take_trace(struct slot *slot, const struct trace *trace)
{
	const struct fifo *fifo = slot->queue;

	slot->traced.enqueue = slot->enqueue;
	slot->traced.pick = slot->pick;
	slot->traced.is_fifo = slot->is_fifo;
	slot->enqueue = slot->is_fifo ? enqueue_fifo : enqueue;
	slot->pick = pick;
	if (slot->is_fifo)
		atomic_store_explicit(&slot->ready, length(&fifo->woken) + length(&fifo->others),
				      memory_order_relaxed);
	__atomic_store_n(&slot->is_fifo, false, __ATOMIC_RELAXED);
	slot->lane = lane_of(trace, slot);
	put_slot(trace, slot, true);
}

static void leave_trace(struct slot *slot)
{
	slot->enqueue = slot->traced.enqueue;
	slot->pick = slot->traced.pick;
	if (slot->traced.is_fifo)
		atomic_store_explicit(&slot->ready, 0, memory_order_relaxed);
	__atomic_store_n(&slot->is_fifo, slot->traced.is_fifo, __ATOMIC_RELAXED);
	slot->traced.is_fifo = slot->traced.polls = false;
	slot->lane = NULL;
}

void switchto_trace_look(struct slot *slot)
{
	const struct trace *trace = atomic_load(&switchto_trace);

	if (slot->lane && (!trace || slot->lane != lane_of(trace, slot)))
		leave_trace(slot);
	if (!slot->lane && trace)
		take_trace(slot, trace);
	if (trace)
		return;
	atomic_store(&slot->looks, false);
	/* One that begins just now sets it before it looks whether the slot sleeps, or after this. */
	if (atomic_load(&switchto_trace))
		atomic_store(&slot->looks, true);
}

void switchto_trace_poll(struct slot *slot, nsec_t timeout)
{
	switchto_trace_look(slot);
	if (!slot->lane)
		return;
	if (timeout)
		put(slot->lane, slot->number, TRACE_POLL << 8, NULL, (uint64_t)timeout, NULL);
	slot->traced.polls = true;
}

void switchto_trace_polled(struct slot *slot, long events)
{
	if (!slot->lane)
		return;
	put(slot->lane, slot->number, TRACE_POLLED << 8, NULL, events > 0 ? (uint64_t)events : 0,
	    NULL);
	slot->traced.polls = false;
}

void switchto_trace_set_pick(struct slot *slot, struct switchto_entry *(*step)(void *queue))
{
	if (slot->lane) {
		slot->traced.is_fifo = false;
		slot->traced.pick = step;
	} else {
		__atomic_store_n(&slot->is_fifo, false, __ATOMIC_RELAXED);
		slot->pick = step;
	}
}

void switchto_trace_begin_slot(struct slot *slot)
{
	static atomic_uint slots;

	/* As many bits as there are in an event. */
	slot->number = atomic_fetch_add(&slots, 1) & 0xffffff;
}

void switchto_trace_begin_sched(struct switchto_sched *sched)
{
	for (unsigned int i = 0; traces() && i < sched->slots; i++) {
		atomic_store(&sched->slot[i].looks, true);
		switchto_trace_look(&sched->slot[i]);
	}
}

void switchto_trace_attend(struct switchto_sched *sched)
{
	for (unsigned int i = 0; i < sched->slots; i++) {
		atomic_store(&sched->slot[i].looks, true);
		switchto_inbox_wake(&sched->slot[i]);
	}
}

void switchto_trace_describe(struct switchto_sched *sched)
{
	const struct trace *trace = atomic_load(&switchto_trace);

	pthread_mutex_lock(&sched->lock);
	for (struct switchto_task *task = sched->all_tasks; task; task = task->next_of_all)
		if (atomic_load(&task->state) != FINISHED && atomic_load(&task->name[0]))
			put_name(trace, task);
	pthread_mutex_unlock(&sched->lock);
}

/* --- the file --- */

/* Whether the kernel itself takes the CPU's counter for its clock: so it is the same on all CPUs. */
static bool has_counter(void)
{
	char name[32] = "";
	const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
			    O_RDONLY | O_CLOEXEC);

	if (fd == -1)
		return false;
	if (read(fd, name, sizeof(name) - 1) < 0)
		name[0] = 0;
	sure_close(fd);
#ifdef __x86_64__
	return strcmp(name, "tsc\n") == 0;
#else
	return strcmp(name, "arch_sys_counter\n") == 0;
#endif
}

static uint64_t time_of(const struct trace *trace)
{
	return trace->ticks ? counter() : (uint64_t)switchto_now();
}

/* close() alone does not end the lock: a child that has not reached its exec has the file open, too. */
static void give_up_file(int fd)
{
	flock(fd, LOCK_UN);
	sure_close(fd);
}

/* A descriptor for @path, of @size bytes; or a negative error number. */
static int open_file(const char *path, size_t size)
{
	struct rlimit limit;
	struct stat status;
	int fd, error;

	/* To open what is no file may wait, or do something. */
	if (!stat(path, &status) && !S_ISREG(status.st_mode))
		return -EINVAL;
	/* A signal would come with the error. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < size)
		return -EFBIG;
	fd = openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
	if (fd == -1)
		return -errno;
	error = fstat(fd, &status) ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
	/* Another process, which has not ended, may record into it. */
	if (!error && flock(fd, LOCK_EX | LOCK_NB))
		error = errno == EWOULDBLOCK ? EBUSY : errno;
	if (!error && ftruncate(fd, 0))
		error = errno;
	/* A disk that is full must not be found out by SIGBUS. */
	if (!error) {
		do
			error = posix_fallocate(fd, 0, (off_t)size);
		while (error == EINTR);
		if (error && ftruncate(fd, 0))
			error = errno;
		/* /proc calls its files regular. */
		if (error == ESPIPE)
			error = EINVAL;
	}
	if (!error)
		return fd;
	give_up_file(fd);
	return -error;
}

static void begin_lanes(struct trace *trace, uint32_t lanes, uint32_t places, size_t first)
{
	char *base = (char *)trace->head;

	for (uint32_t i = 0; i < lanes; i++)
		trace->lane[i] = (struct trace_lane){
			.next = (_Atomic uint64_t *)(base + PAGE + (size_t)i * COUNTER_SIZE),
			.places = (_Atomic uint64_t *)(base + first +
						       (size_t)i * places * EVENT_SIZE),
			.mask = places - 1,
			.in_ns = !trace->ticks,
		};
}

static void begin_head(struct head *head, const struct trace *trace, uint32_t lanes,
		       uint32_t places)
{
	struct timespec date;

	head->lanes = lanes;
	head->places = places;
	head->ticks = trace->ticks;
	head->pid = (uint32_t)getpid();
	pthread_getname_np(pthread_self(), head->comm, sizeof(head->comm));
	clock_gettime(CLOCK_REALTIME, &date);
	atomic_store(&head->start, time_of(trace));
	atomic_store(&head->start_ns, (uint64_t)switchto_now());
	atomic_store(&head->start_date,
		     (uint64_t)date.tv_sec * NSEC_PER_SEC + (uint64_t)date.tv_nsec);
	atomic_store(&head->last, atomic_load(&head->start));
	atomic_store(&head->last_ns, atomic_load(&head->start_ns));
	memcpy(head->magic, "SWTRACE1", sizeof(head->magic));
}

/* 0 or an error number. With the lock. */
static int begin(const char *path, size_t bytes)
{
	uint32_t slots = 1, lanes, places = LEAST_PLACES;
	size_t size, first;
	struct trace *trace;
	int fd, error;

	while (slots < switchto_cpus() && slots < MOST_SLOTS)
		slots *= 2;
	lanes = FIRST_SLOT + slots;
	first = PAGE + (lanes * (size_t)COUNTER_SIZE + PAGE - 1) / PAGE * PAGE;
	size = first + (size_t)lanes * places * EVENT_SIZE;
	if (bytes < size)
		return EINVAL;
	while (places < 1U << 30 && first + 2 * (size - first) <= bytes) {
		places *= 2;
		size = first + 2 * (size - first);
	}
	trace = calloc(1, sizeof(*trace) + lanes * sizeof(trace->lane[0]));
	if (!trace)
		return ENOMEM;
	fd = open_file(path, size);
	if (fd < 0) {
		free(trace);
		return -fd;
	}
	trace->head = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	error = trace->head == MAP_FAILED ? errno : switchto_own(&trace->file, fd);
	if (error) {
		if (trace->head != MAP_FAILED)
			munmap(trace->head, size);
		if (ftruncate(fd, 0))
			error = errno;
		give_up_file(fd);
		free(trace);
		/* Some file systems can't be shared so: 9p, in virtual machines. EAGAIN: mlockall(2). */
		return error == ENOMEM || error == EAGAIN ? ENOMEM : ENODEV;
	}
	trace->size = size;
	trace->ticks = has_counter();
	trace->slots = slots;
	begin_lanes(trace, lanes, places, first);
	begin_head(trace->head, trace, lanes, places);
	/* Each stays known for the checkers of leaks. */
	trace->next = all_traces;
	all_traces = trace;
	atomic_store(&switchto_trace, trace);
	return 0;
}

/*
 * Events that are still written go nowhere: trace.h. If there is no memory for that, they go into the
 * file, which stays open and locked: another trace would cut it off. @unlocks: not in the child of a
 * fork, whose parent has the same lock.
 */
static void detach(const struct trace *trace, bool unlocks)
{
	const bool detached = mmap(trace->head, trace->size, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
				   0) != MAP_FAILED;

	if (!switchto_owns(&trace->file) || (unlocks && !detached))
		return;
	if (unlocks)
		give_up_file(trace->file.fd);
	else
		sure_close(trace->file.fd);
}

static void describe_slots(struct switchto_sched *sched)
{
	const struct trace *trace = atomic_load(&switchto_trace);

	switchto_trace_describe(sched);
	for (unsigned int i = 0; i < sched->slots; i++)
		put_slot(trace, &sched->slot[i], false);
}

void switchto_trace_tick(void)
{
	const struct trace *trace;

	if (pthread_mutex_trylock(&trace_lock))
		return;
	trace = atomic_load(&switchto_trace);
	if (trace) {
		atomic_store(&trace->head->last, time_of(trace));
		atomic_store(&trace->head->last_ns, (uint64_t)switchto_now());
	}
	pthread_mutex_unlock(&trace_lock);
}

int switchto_trace_start(const char *file, size_t bytes)
{
	// cppcheck-suppress unreadVariable
	NO_CANCELLATION;
	int error = file ? 0 : EINVAL;

	pthread_mutex_lock(&trace_lock);
	if (!error && atomic_load(&switchto_trace))
		error = EBUSY;
	if (!error)
		error = begin(file, bytes ? bytes : DEFAULT_SIZE);
	if (!error) {
		switchto_sched_each(switchto_trace_describe);
		switchto_sched_each(switchto_trace_attend);
	}
	pthread_mutex_unlock(&trace_lock);
	return error ? fail(error) : 0;
}

int switchto_trace_stop(void)
{
	// cppcheck-suppress unreadVariable
	NO_CANCELLATION;
	struct trace *trace;

	pthread_mutex_lock(&trace_lock);
	trace = atomic_load(&switchto_trace);
	if (trace) {
		/* Again: those at the beginning may have been overwritten. */
		switchto_sched_each(describe_slots);
		atomic_store(&trace->head->last, time_of(trace));
		atomic_store(&trace->head->last_ns, (uint64_t)switchto_now());
		atomic_store(&trace->head->stop, time_of(trace));
		atomic_store(&switchto_trace, NULL);
		detach(trace, true);
		switchto_sched_each(switchto_trace_attend);
	}
	pthread_mutex_unlock(&trace_lock);
	return trace ? 0 : fail(EINVAL);
}

static void at_exit(void)
{
	if (traces())
		switchto_trace_stop();
}

static void by_variable(void)
{
	const char *file = secure_getenv("SWITCHTO_TRACE");

	if (!file || !*file || traces())
		return;
	if (switchto_trace_start(file, 0))
		fprintf(stderr, "libswitchto-sched: SWITCHTO_TRACE=%s: not recorded: %s\n", file,
			strerror(errno));
	else
		atexit(at_exit);
}

void switchto_trace_by_variable(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const int error = errno;

	pthread_once(&once, by_variable);
	errno = error;
}

void switchto_trace_forked(void)
{
	struct trace *trace = atomic_load(&switchto_trace);

	pthread_mutex_init(&trace_lock, NULL);
	atomic_store(&switchto_trace, NULL);
	if (trace)
		detach(trace, false);
}
