// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "copy.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOTE_NAME "libswitchto"
#define NOTE_TYPE 1   /* the layout of struct copy */
#define MOST_OTHERS 7 /* that are loaded at a time; more are not found */

struct copy {
	atomic_bool in_use;
	_Atomic(struct copy *) others[MOST_OTHERS];
};

/* Named by the note below. */
__attribute__((visibility("hidden"), used)) struct copy switchto_copy;

/*
 * The copies do not see each other's symbols: a plugin does not see the program's, nor another
 * plugin's. The dynamic linker lists the program headers of each object. So each copy leaves an
 * ELF note in its object: the distance from the note to its struct copy.
 */
__asm__(".pushsection .note.switchto, \"a\", %note\n"
	"	.balign 4\n"
	"	.long 2f - 1f\n"
	"	.long 4f - 3f\n"
	"	.long 1\n"
	"1:	.asciz \"libswitchto\"\n"
	"2:	.balign 4\n"
	"3:	.long switchto_copy - 3b\n"
	"4:	.balign 4\n"
	".popsection");

typedef void (*visitor)(struct copy *other);

static size_t aligned(size_t size, size_t alignment)
{
	return (size + alignment - 1) & ~(alignment - 1);
}

/* Calls @visit for the copy that one of the notes from @at to @end leads to. */
static void visit_notes(const char *at, const char *end, size_t alignment, visitor visit)
{
	while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const void *)at;
		const char *name = at + sizeof(*note);
		size_t name_size = aligned(note->n_namesz, alignment);
		size_t size = sizeof(*note) + name_size + aligned(note->n_descsz, alignment);

		if (size > (size_t)(end - at))
			return;
		if (note->n_type == NOTE_TYPE && note->n_namesz == sizeof(NOTE_NAME) &&
		    note->n_descsz == sizeof(int32_t) &&
		    memcmp(name, NOTE_NAME, sizeof(NOTE_NAME)) == 0) {
			const char *from = name + name_size;
			int32_t offset;
			struct copy *copy;

			memcpy(&offset, from, sizeof(offset));
			copy = (void *)(from + offset);
			if (copy != &switchto_copy)
				visit(copy);
		}
		at += size;
	}
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const visitor *visit = arg;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		/* The linker tells a number. NOLINTNEXTLINE(performance-no-int-to-ptr) */
		const char *notes = (const char *)(info->dlpi_addr + header->p_vaddr);

		if (header->p_type == PT_NOTE)
			visit_notes(notes, notes + header->p_memsz, header->p_align == 8 ? 8 : 4,
				    *visit);
	}
	return 0;
}

static void visit_others(visitor visit)
{
	dl_iterate_phdr(visit_object, &visit);
}

/* Unless it is there already: the other one may have been loaded first. */
static void add(struct copy *copy, struct copy *other)
{
	for (int i = 0; i < MOST_OTHERS; i++)
		if (atomic_load(&copy->others[i]) == other)
			return;
	for (int i = 0; i < MOST_OTHERS; i++) {
		struct copy *none = NULL;

		if (atomic_compare_exchange_strong(&copy->others[i], &none, other))
			return;
	}
}

static void meet(struct copy *other)
{
	add(&switchto_copy, other);
	add(other, &switchto_copy);
}

static void part(struct copy *other)
{
	for (int i = 0; i < MOST_OTHERS; i++) {
		struct copy *expected = &switchto_copy;

		atomic_compare_exchange_strong(&other->others[i], &expected, NULL);
	}
}

/*
 * The copies meet when they are loaded, under the dynamic linker's lock, and not when
 * they are called: that may be in a signal handler.
 */
static __attribute__((constructor)) void loaded(void)
{
	visit_others(meet);
}

static __attribute__((destructor)) void unloaded(void)
{
	visit_others(part);
}

static bool other_in_use(void)
{
	for (int i = 0; i < MOST_OTHERS; i++) {
		struct copy *other = atomic_load(&switchto_copy.others[i]);

		if (other && atomic_load(&other->in_use))
			return true;
	}
	return false;
}

static int refuse(void)
{
	static const char message[] =
		"libswitchto: wanted to be the only copy in this process, found another one in use; "
		"link the program and its plugins with the same version of the shared library\n";
	static atomic_flag said = ATOMIC_FLAG_INIT;

	/* Not write(), which is a cancellation point. */
	if (!atomic_flag_test_and_set(&said) &&
	    syscall(SYS_write, STDERR_FILENO, message, sizeof(message) - 1) < 0) {
		/* Nobody reads it, and ELIBMAX says the same. */
	}
	return ELIBMAX;
}

int switchto_copy_use(void)
{
	if (atomic_load(&switchto_copy.in_use))
		return 0;
	if (other_in_use())
		return refuse();
	atomic_store(&switchto_copy.in_use, true);
	/* Of two that are first at the same time one gives way, or both: never none. */
	if (other_in_use()) {
		atomic_store(&switchto_copy.in_use, false);
		return refuse();
	}
	return 0;
}
